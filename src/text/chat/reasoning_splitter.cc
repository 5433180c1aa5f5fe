#include "text/chat/reasoning_splitter.h"

#include <algorithm>
#include <utility>

namespace pergola {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

std::size_t partial_mark(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (std::size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (mark.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

ReasoningSplitter::ReasoningSplitter(ReasoningMarks marks, bool inside, std::string implicit_close)
    : marks_(std::move(marks)),
      implicit_close_(std::move(implicit_close)),
      state_(inside ? State::opened : State::before) {}

void ReasoningSplitter::push(std::string_view text) {
  held_ += text;
  while (step(false)) {
  }
}

void ReasoningSplitter::finish() {
  while (step(true)) {
  }
}

std::string ReasoningSplitter::take_reasoning() {
  return std::exchange(reasoning_, {});
}
std::string ReasoningSplitter::take_content() {
  return std::exchange(content_, {});
}

// Takes what it can of the held text; false when more text is needed.
bool ReasoningSplitter::step(bool last) {
  switch (state_) {
    case State::before:
      return step_before(last);
    case State::opened:
      return skip_space(State::reasoning, false, last);
    case State::reasoning:
      return step_reasoning(last);
    case State::closed:
      return skip_space(State::content, true, last);
    case State::content:
      content_ += std::exchange(held_, {});
      return false;
  }
  return false;
}

// The reasoning may start the answer, after white space; a closing mark alone means that it was opened before.
bool ReasoningSplitter::step_before(bool last) {
  const std::size_t start = held_.find_first_not_of(kSpace);
  const std::string_view text = start == std::string::npos ? std::string_view() : std::string_view(held_).substr(start);
  if (text.starts_with(marks_.open)) {
    held_.erase(0, start + marks_.open.size());
    state_ = State::opened;
    return true;
  }
  if (!last && (text.empty() || marks_.open.starts_with(text))) return false;
  state_ = State::content;
  return true;
}

bool ReasoningSplitter::skip_space(State next, bool all, bool last) {
  std::size_t skipped = 0;
  if (all) {
    skipped = std::min(held_.find_first_not_of(kSpace), held_.size());
  } else if (held_.starts_with("\n")) {
    skipped = 1;
  }
  const bool ended = all ? skipped < held_.size() : !held_.empty();
  held_.erase(0, skipped);
  if (!ended && !last) return false;
  state_ = next;
  return true;
}

bool ReasoningSplitter::step_reasoning(bool last) {
  const std::size_t close = held_.find(marks_.close);
  const std::size_t implicit = implicit_close_.empty() ? std::string::npos : held_.find(implicit_close_);
  const std::size_t end = std::min(close, implicit);
  if (end != std::string::npos) {
    reasoning_.append(held_, 0, end > 0 && held_[end - 1] == '\n' ? end - 1 : end);
    held_.erase(0, close < implicit ? end + marks_.close.size() : end);
    state_ = close < implicit ? State::closed : State::content;
    return true;
  }
  std::size_t keep = std::max(partial_mark(held_, marks_.close), partial_mark(held_, implicit_close_));
  // A line end may turn out to stand before the mark.
  if (held_.size() > keep && held_[held_.size() - keep - 1] == '\n') ++keep;
  if (last) keep = 0;
  reasoning_.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

}  // namespace pergola
