#include "server/stop_strings.h"

#include <algorithm>

namespace pergola {

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& string : strings_) {
    if (const std::size_t at = held_.find(string); at < first) {
      first = at;
      found_ = string;
    }
  }
  std::size_t keep = 0;  // bytes of the longest end that could become one of the strings
  if (!found_) {
    for (const std::string& string : strings_) {
      std::size_t length = std::min(string.size() - 1, held_.size());
      while (length > keep && !held_.ends_with(std::string_view(string).substr(0, length))) --length;
      keep = std::max(keep, length);
    }
  }
  const std::size_t out = found_ ? first : held_.size() - keep;
  std::string text = held_.substr(0, out);
  held_.erase(0, out);
  if (found_) held_.clear();
  return text;
}

}  // namespace pergola
