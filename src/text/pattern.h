#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/regex.h"

namespace pergola {

/// The "pattern" of a tokenizer component: {"String": literal} or {"Regex": expression}.
class Pattern {
 public:
  /// Throws Error when the node is neither or the expression does not compile.
  explicit Pattern(const JsonNode& node);

  /// Appends every match in `text` (valid UTF-8), left to right. An empty literal matches nowhere.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

  /// Appends `text` to `out` with `content` in place of every match.
  void replace_all(std::string_view text, std::string_view content, std::string& out) const;

  /// Whether every match is exactly one character, so that a match never lies across two parts of a text.
  bool is_single_character() const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace pergola
