#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace pergola::jinja {

/// Deepest nesting of lists and dicts that is written.
inline constexpr int kMaxValueDepth = 200;

/// str(value) as Python gives it; nothing for undefined.
std::string to_text(const Value& value);
/// repr(value).
std::string to_repr(const Value& value);
/// repr(number): the shortest decimals that read back the same.
std::string float_text(double number);

/// How json.dumps writes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  ///< spaces a level; -1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// json.dumps(value). Throws Error for a value that has no JSON.
std::string to_json(const Value& value, const JsonStyle& style);

/// str.isspace of one code point.
bool is_python_space(char32_t c);
/// `text` without the code points of `characters` (white space, when null) at its start or end.
std::string_view strip(std::string_view text, const std::string* characters, bool left, bool right);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// str.capitalize: first character upper, rest lower.
std::string to_capitalized(std::string_view text);
/// First character of every word upper, rest lower; words as str.title ("they'Re") or as Jinja's filter ("they're").
std::string to_title(std::string_view text, bool at_every_non_letter);

/// Code points of valid UTF-8.
std::size_t text_length(std::string_view text);
/// Byte offsets of all code points, and the end.
std::vector<std::size_t> character_offsets(std::string_view text);

/// `format` % arguments for the conversions s, r, d, i, f, e, g, x and %. Throws Error for others.
std::string percent_format(std::string_view format, const Value& arguments);

}  // namespace pergola::jinja
