#include "base/error.h"

#include <algorithm>
#include <string_view>

namespace pergola {
namespace {

/// Longest part of a message: names of tensors come from files and may be of any length.
constexpr std::size_t kLongestPart = 400;

/// Text from a file as one line that a terminal shows as it is: control characters become '?', what is too long is cut.
std::string printable(std::string_view text) {
  std::string result;
  std::size_t length = std::min(text.size(), kLongestPart);
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;  // not inside a UTF-8 sequence
  const std::string_view kept = text.substr(0, length);
  for (std::size_t at = 0; at < kept.size(); ++at) {
    const auto byte = static_cast<unsigned char>(kept[at]);
    const bool second_set =
        byte == 0xC2 && at + 1 < kept.size() && static_cast<unsigned char>(kept[at + 1]) < 0xA0;  // U+0080 to U+009F
    result += byte < 0x20 || byte == 0x7F || second_set ? '?' : kept[at];
    if (second_set) ++at;
  }
  if (kept.size() < text.size()) result += "...";
  return result;
}

}  // namespace

std::string Error::compose(const std::string& message, const Where& where) {
  std::string place;
  const auto add = [&](const std::string& text) {
    if (!place.empty()) place += ", ";
    place += text;
  };
  if (!where.file.empty()) add(printable(where.file));
  if (!where.tensor.empty()) add("tensor " + printable(where.tensor));
  if (!where.field.empty()) add("field " + printable(where.field));
  if (where.offset) add(fmt::format("byte {}", *where.offset));
  return place.empty() ? printable(message) : place + ": " + printable(message);
}

}  // namespace pergola
