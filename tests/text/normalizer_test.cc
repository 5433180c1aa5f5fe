#include "text/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "text/utf8.h"

namespace pergola {
namespace {

std::string composed(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
  std::free(result);
  return out;
}

// Our NFC goes over the text piecewise; normalizing all of it at once must give the same.
TEST(Normalizer, ComposesPiecewiseAsAtOnce) {
  const nlohmann::json json = {{"type", "NFC"}};
  const auto normalizer = read_normalizer(JsonNode(json, "tokenizer.json"));
  std::mt19937 random(1);
  const auto between = [&](std::uint32_t first, std::uint32_t last) {
    return static_cast<char32_t>(first + random() % (last - first + 1));
  };
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = static_cast<int>(random() % 12); i > 0; --i) {
      switch (random() % 10) {
        case 0:
          utf8_append(text, between('A', 'z'));
          break;
        case 1:
          utf8_append(text, between(0xC0, 0x24F));
          break;
        case 2:
        case 3:
          utf8_append(text, between(0x300, 0x345));
          break;
        case 4:
          utf8_append(text, between(0x1100, 0x11FF));
          break;
        case 5:
          utf8_append(text, between(0xAC00, 0xAC40));
          break;
        case 6:
          utf8_append(text, between(0x900, 0xE4F));
          break;
        case 7:
          utf8_append(text, between(0x3040, 0x30FF));
          break;
        case 8:
          utf8_append(text, between(0x1E00, 0x2FFF));
          break;
        default: {
          const char32_t c = between(0x370, 0x2FA1D);
          if (c < 0xD800 || c > 0xDFFF) utf8_append(text, c);
        }
      }
    }
    std::string normalized = text;
    bool at_origin = true;
    normalizer->apply(normalized, at_origin);
    ASSERT_EQ(normalized, composed(text)) << text;
  }
}

}  // namespace
}  // namespace pergola
