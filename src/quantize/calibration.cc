#include "quantize/calibration.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "quantize/signs.h"

// The texts as read-only data of this object file.
#define PERGOLA_EMBED(symbol, file)                                                                      \
  asm(".section .rodata\n.global pergola_" #symbol "\n.global pergola_" #symbol "_end\npergola_" #symbol \
      ":\n.incbin \"" file "\"\npergola_" #symbol "_end:\n.byte 0\n.previous\n");                        \
  extern "C" const char pergola_##symbol[], pergola_##symbol##_end[];

PERGOLA_EMBED(technical, PERGOLA_CALIBRATION_DIR "/technical.txt")
PERGOLA_EMBED(generated, PERGOLA_CALIBRATION_DIR "/generated.txt")
PERGOLA_EMBED(law, PERGOLA_CALIBRATION_DIR "/law.txt")

namespace pergola {

std::string builtin_calibration_text() {
  std::string text(pergola_technical, pergola_technical_end);
  text.append(pergola_generated, pergola_generated_end);
  return text.append(pergola_law, pergola_law_end);
}

namespace {

void add_random_tokens(CalibrationTokens& calibration, std::int64_t count, std::int64_t vocab_size,
                       std::uint64_t seed) {
  SignSource random(seed ^ 0x63616C6962726174ull);
  for (std::int64_t i = 0; i < count; ++i) {
    calibration.tokens.push_back(
        static_cast<std::int32_t>(random.next_word() % static_cast<std::uint64_t>(vocab_size)));
  }
}

}  // namespace

CalibrationTokens random_calibration(std::int64_t rows, std::int64_t columns, std::int64_t vocab_size,
                                     std::uint64_t seed) {
  CalibrationTokens calibration;
  calibration.length = columns;
  add_random_tokens(calibration, rows * columns, vocab_size, seed);
  return calibration;
}

CalibrationTokens make_calibration(std::span<const std::int32_t> text, std::int64_t rows, std::int64_t columns,
                                   std::int64_t vocab_size, std::uint64_t seed) {
  const std::int64_t windows = std::ssize(text) / columns;
  if (windows == 0)
    fail({.field = "--calibration"}, "the text has {} tokens, less than one row of {} (--columns)", text.size(),
         columns);
  const std::int64_t random_rows = std::max<std::int64_t>(1, rows / 10),
                     text_rows = std::min(windows, std::max<std::int64_t>(1, rows - random_rows));
  CalibrationTokens calibration;
  calibration.length = columns;
  for (std::int64_t row = 0; row < text_rows; ++row) {
    const auto window =
        text.subspan(static_cast<std::size_t>(row * windows / text_rows * columns), static_cast<std::size_t>(columns));
    calibration.tokens.insert(calibration.tokens.end(), window.begin(), window.end());
  }
  add_random_tokens(calibration, random_rows * columns, vocab_size, seed);
  return calibration;
}

}  // namespace pergola
