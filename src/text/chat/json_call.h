#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/chat/json_stream.h"
#include "text/chat/tool_parsers.h"

namespace pergola {

/// One call written as {"name": N, "arguments": {...}} (or "parameters"), streamed: the name as soon as it is known,
/// then the arguments as they come.
class JsonCall {
 public:
  enum class Status : std::uint8_t { more, done, failed };

  /// `accepts` says whether a name makes it a call; null: every name.
  explicit JsonCall(std::size_t call, std::function<bool(std::string_view)> accepts = nullptr)
      : call_(call), accepts_(std::move(accepts)) {}

  /// Takes bytes of `text` until the object ends or turns out to be no call; returns how many.
  std::size_t push(std::string_view text, DeltaList& deltas);
  Status status() const { return status_; }
  /// The name was given out: it is a call, whatever follows.
  bool started() const { return started_; }
  /// Ends a call that was started.
  void close(DeltaList& deltas);

 private:
  enum class State : std::uint8_t { begin, key, colon, value, after };
  enum class Member : std::uint8_t { name, arguments, id, other };

  void between(char c);
  void end_key();
  void end_value(DeltaList& deltas);
  void pass_on(DeltaList& deltas);
  void finish(DeltaList& deltas);

  std::size_t call_;
  std::function<bool(std::string_view)> accepts_;
  Status status_ = Status::more;
  State state_ = State::begin;
  bool started_ = false;
  bool any_arguments_ = false;
  Member member_ = Member::other;
  JsonStream value_;
  std::string text_;       // of the member in the making
  std::string arguments_;  // that wait for the name
  std::string id_;
};

}  // namespace pergola
