#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "text/unicode.h"
#include "text/unicode_additions.h"
#include "text/utf8_assembler.h"

namespace pergola {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(out, bytes);
  return out;
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    utf8_append(text, c);
    std::size_t at = 0;
    ASSERT_EQ(utf8_next(text, at), c);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(utf8_length(text[0]), text.size());
    ASSERT_EQ(utf8_previous(text, text.size()), 0u);
    ASSERT_TRUE(is_valid_utf8(text));
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // The examples of the Unicode standard, tables 3-8 to 3-11.
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("ok \xE4\xBD"), "ok \uFFFD");
  EXPECT_EQ(lossy("你好"), "你好");
}

TEST(Utf8, KnowsWhatIsInvalid) {
  for (const char* bytes : {"\x80", "\xC1\x80", "\xE0\x9F\x80", "\xED\xA0\x80", "\xF0\x8F\x80\x80", "\xF4\x90\x80\x80",
                            "\xF5\x80", "abcdefgh\xFF", "\xE4\xBD"}) {
    EXPECT_FALSE(is_valid_utf8(bytes));
  }
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("abcdefghijklmnop é 你 🎉 abcdefghijk"));
}

TEST(Utf8, AssemblerDoesNotDependOnThePortions) {
  std::mt19937 random(1);
  const char samples[] = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x8E\x89\xFF\xE0\x80\xED\xA0";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = static_cast<int>(random() % 30); i > 0; --i) bytes += samples[random() % (sizeof samples - 1)];
    Utf8Assembler assembler;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = std::min<std::size_t>(random() % 4, bytes.size() - at);
      std::string part;
      assembler.push(std::string_view(bytes).substr(at, length), part);
      EXPECT_TRUE(is_valid_utf8(part));
      out += part;
      at += length;
    }
    assembler.finish(out);
    EXPECT_EQ(out, lossy(bytes));
  }
}

TEST(Utf8, QuotesOnlyTheStartOfLongTexts) {
  EXPECT_EQ(in_quotes("short"), "\"short\"");
  EXPECT_EQ(in_quotes(std::string(59, 'a') + "éé"), "\"" + std::string(59, 'a') + "...\"");
}

TEST(Unicode, Classes) {
  for (const char32_t c : {0x09, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x202F, 0x205F, 0x3000}) {
    EXPECT_TRUE(is_white_space(c)) << std::hex << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {0x08, 0x180E, 0x200B, 0x2060, 0xFEFF}) EXPECT_FALSE(is_white_space(c));
  for (const char32_t c : {U'a', U'_', U'0', U'é', U'\u0301', U'\u203F', U'\u200D', U'\u24B6', U'\u2160', U'中'}) {
    EXPECT_TRUE(is_word(c)) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {U'-', U' ', U'\u00B2', U'\u2460', U'€'}) EXPECT_FALSE(is_word(c));
  EXPECT_TRUE(is_numeric(U'½') && is_numeric(U'٣') && is_numeric(U'Ⅷ') && !is_numeric(U'a'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'—') && !is_punctuation(U'€'));
}

TEST(Unicode, NewCodePointsCountAsOlderOnesOfTheirKind) {
  EXPECT_EQ(older_equivalent(U'\U00031350'), U'\U00020000');  // a Han character of Unicode 15
  EXPECT_EQ(older_equivalent(U'\U0001FAE8'), U'\U0001F600');  // an emoji of Unicode 15
  EXPECT_EQ(older_equivalent(U'\U00010D40'), U'\U000104A0');  // a digit of Unicode 16
  for (const char32_t c : {U'a', U'你', U'\U0001F389', U'\u0898', U'\U0010FFFF'}) EXPECT_EQ(older_equivalent(c), c);
  EXPECT_FALSE(has_additions("abc é 你好 สวัสดี 🎉"));
  EXPECT_TRUE(has_additions("abc \U00031350"));
  EXPECT_TRUE(has_additions("\u0897"));
  EXPECT_EQ(without_additions("a\U00031350é\u0897"), "a\U00020000é\u1AB0");
}

}  // namespace
}  // namespace pergola
