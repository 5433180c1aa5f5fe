#include "eval/write_logits.h"

#include "eval/window.h"
#include "format/logits_file.h"

namespace pergola {

void write_logits(Engine& engine, const TokenFile& tokens, const std::filesystem::path& to, const Progress& progress) {
  engine.check_ids(tokens.ids());
  LogitsWriter writer(to, tokens.ids(), tokens.windows(), engine.info().vocab_size);
  const auto total = static_cast<std::uint64_t>(tokens.windows());
  for (std::int64_t i = 0; i < tokens.windows(); ++i) {
    progress("windows", static_cast<std::uint64_t>(i), total);
    run_window(engine, tokens.window(i), [&](std::int64_t, std::span<const float> logits) { writer.write(logits); });
  }
  writer.finish();
  progress("windows", total, total);
}

}  // namespace pergola
