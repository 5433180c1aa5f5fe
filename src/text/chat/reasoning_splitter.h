#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat/chat_format.h"

namespace pergola {

/// Bytes at the end of `text` that may be the start of `mark`: a suffix of the one that is a proper prefix of the
/// other.
std::size_t partial_mark(std::string_view text, std::string_view mark);

/// Separates reasoning from content while text arrives. White space around the marks belongs to neither: one line end
/// behind the opening mark and before the closing one, all behind the closing one. The result does not depend on the
/// portions.
class ReasoningSplitter {
 public:
  /// Everything is content.
  ReasoningSplitter() = default;
  /// `inside`: the text starts in the reasoning. `implicit_close`: a mark that ends the reasoning too and belongs to
  /// the content; empty for none.
  ReasoningSplitter(ReasoningMarks marks, bool inside, std::string implicit_close);

  void push(std::string_view text);
  /// No more text comes: what was held back goes where it stands. Reasoning that was not closed stays reasoning.
  void finish();

  /// What has become certain since the last call.
  std::string take_reasoning();
  std::string take_content();

 private:
  enum class State : std::uint8_t { before, opened, reasoning, closed, content };

  bool step(bool last);
  bool step_before(bool last);
  bool step_reasoning(bool last);
  bool skip_space(State next, bool all, bool last);

  ReasoningMarks marks_;
  std::string implicit_close_;
  State state_ = State::content;
  std::string held_;
  std::string reasoning_;
  std::string content_;
};

}  // namespace pergola
