#include "text/regex_syntax.h"

namespace pergola {
namespace {

// Unicode White_Space. PCRE2's own \s also takes U+180E, which stopped being a space in Unicode 6.3.
constexpr std::string_view white_space = "\\x09-\\x0d\\x{85}\\p{Z}";

}  // namespace

std::string translate_regex(std::string_view pattern, const Where& where) {
  std::string out;
  bool in_class = false;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\') {
      if (++at == pattern.size()) fail(where, "regular expression \"{}\" ends with a backslash", pattern);
      const char escaped = pattern[at];
      if (escaped == 's') {
        out += in_class ? std::string(white_space) : fmt::format("[{}]", white_space);
      } else if (escaped == 'S') {
        out += in_class ? "\\S\\x{180e}" : fmt::format("[^{}]", white_space);
      } else {
        out += '\\';
        out += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

}  // namespace pergola
