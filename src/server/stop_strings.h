#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pergola {

/// Ends a text that comes in pieces where one of some strings appears. Text that could still be the start of one is
/// held back.
class StopStrings {
 public:
  /// None is empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  /// Takes the next piece. Returns text that is certain to come before any of the strings.
  std::string push(std::string_view piece);

  /// What was held back: the text ended otherwise.
  std::string finish() { return std::move(held_); }

  /// The string that ended the text.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace pergola
