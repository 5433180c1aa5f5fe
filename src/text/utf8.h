#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pergola {

/// One step through bytes that may not be UTF-8.
struct Utf8Step {
  enum class Kind { valid, invalid, incomplete };
  Kind kind;
  std::size_t length;  ///< bytes of the code point, or of the maximal invalid subpart (Unicode 3.9, table 3-8)
};

/// Looks at the sequence that starts at text[at]; `at` is inside. `incomplete` means that the text ends within a
/// sequence that more bytes could still make valid.
Utf8Step utf8_step(std::string_view text, std::size_t at);

/// Bytes of the code point that starts with `lead`, in valid UTF-8.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Decodes the code point at text[at] of valid UTF-8 and moves `at` behind it.
char32_t utf8_next(std::string_view text, std::size_t& at);

/// Start of the code point that ends just before text[end] of valid UTF-8; `end` > 0.
std::size_t utf8_previous(std::string_view text, std::size_t end);

void utf8_append(std::string& out, char32_t code_point);

bool is_valid_utf8(std::string_view text);

/// Appends `text` with U+FFFD in place of each maximal invalid subpart, the WHATWG practice that every browser and
/// Rust's lossy conversion follow.
void append_lossy_utf8(std::string& out, std::string_view text);

/// The start of `text` in quotes, for messages about a user's input.
std::string in_quotes(std::string_view text);

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

}  // namespace pergola
