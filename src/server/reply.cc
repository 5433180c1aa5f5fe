#include "server/reply.h"

#include <chrono>
#include <random>

#include "server/json_fields.h"

namespace pergola {

void WholeReply::piece(std::size_t answer, const AnswerPiece& piece) {
  AnswerPiece& all = answers_[answer].all;
  all.text += piece.text;
  all.reasoning += piece.reasoning;
  all.tokens.insert(all.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  for (const ToolCallPiece& call : piece.tool_calls) {
    const auto place = static_cast<std::size_t>(call.index);
    if (place >= all.tool_calls.size()) all.tool_calls.resize(place + 1);
    ToolCallPiece& whole = all.tool_calls[place];
    whole.index = call.index;
    if (!call.id.empty()) whole.id = call.id;
    whole.name += call.name;
    whole.arguments += call.arguments;
  }
}

void WholeReply::end_answer(std::size_t answer, const AnswerEnding& ending) {
  answers_[answer].ending = ending;
}

void WholeReply::end(const Usage& usage) {
  exchange_->respond({.body = to_text(body(answers_, usage))});
}

void WholeReply::fail(const ApiError& error) {
  exchange_->respond(error_response(error, style_));
}

void EventStream::start() {
  exchange_->start_stream(
      {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void EventStream::send_text(std::string_view name, std::string_view data) {
  std::string event;
  event.reserve(name.size() + data.size() + 24);
  if (!name.empty()) event.append("event: ").append(name).append("\n");
  event.append("data: ").append(data).append("\n\n");
  exchange_->write(event);
}

void EventStream::send(std::string_view name, const nlohmann::ordered_json& data) {
  send_text(name, to_text(data));
}

std::string random_id(std::string_view prefix) {
  static constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kAlphabet[random() % kAlphabet.size()];
  return id;
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace pergola
