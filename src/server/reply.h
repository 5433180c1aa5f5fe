#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/exchange.h"

namespace pergola {

/// A token as text, with the logarithms of its probability and of the most probable alternatives.
struct TokenText {
  std::string text;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};

/// A piece of a call of a tool. The first piece of a call has id and name.
struct ToolCallPiece {
  std::int64_t index = 0;  ///< of the call in its answer
  std::string id;
  std::string name;
  std::string arguments;  ///< the next piece of a JSON text
};

/// What one token, or the end, added to an answer.
struct AnswerPiece {
  std::string text;
  std::string reasoning;
  std::vector<ToolCallPiece> tool_calls;
  std::vector<TokenText> tokens;  ///< only where logprobs were asked for

  bool empty() const { return text.empty() && reasoning.empty() && tool_calls.empty() && tokens.empty(); }
};

enum class AnswerEnd : std::uint8_t { stop, length, tool_calls };

/// How an answer ended.
struct AnswerEnding {
  AnswerEnd end = AnswerEnd::stop;
  std::optional<std::string> stop_string;  ///< the one that was met
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t answer_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

/// Puts answers into the words of one protocol and sends them. Calls come in order, one at a time: start, then for
/// every answer pieces and its end, then end or fail.
class Reply {
 public:
  virtual ~Reply() = default;
  /// The request was taken.
  virtual void start() {}
  virtual void piece(std::size_t answer, const AnswerPiece& piece) = 0;
  virtual void end_answer(std::size_t answer, const AnswerEnding& ending) = 0;
  virtual void end(const Usage& usage) = 0;
  virtual void fail(const ApiError& error) = 0;
};

/// An answer as a whole.
struct Answer {
  AnswerPiece all;  ///< pieces put together; a tool call is one element
  AnswerEnding ending;
};

/// A reply that is sent when everything is there.
class WholeReply : public Reply {
 public:
  WholeReply(std::shared_ptr<Exchange> exchange, std::size_t answers, ErrorStyle style)
      : exchange_(std::move(exchange)), answers_(answers), style_(style) {}

  void piece(std::size_t answer, const AnswerPiece& piece) override;
  void end_answer(std::size_t answer, const AnswerEnding& ending) override;
  void end(const Usage& usage) override;
  void fail(const ApiError& error) override;

 protected:
  virtual nlohmann::ordered_json body(const std::vector<Answer>& answers, const Usage& usage) = 0;

 private:
  std::shared_ptr<Exchange> exchange_;
  std::vector<Answer> answers_;
  ErrorStyle style_;
};

/// Server-sent events: what both protocols stream.
class EventStream {
 public:
  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void start();
  /// One event; `name` empty: without one.
  void send_text(std::string_view name, std::string_view data);
  void send(std::string_view name, const nlohmann::ordered_json& data);
  void finish() { exchange_->finish(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

/// An id such as "chatcmpl-4f1c…": `prefix` and 24 random characters.
std::string random_id(std::string_view prefix);

/// Seconds since 1970.
std::int64_t unix_seconds();

}  // namespace pergola
