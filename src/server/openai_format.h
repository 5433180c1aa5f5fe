#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/json_fields.h"
#include "server/reply.h"

namespace pergola {

// What chat and text completions have in common.

/// "stop", "length", "tool_calls".
std::string finish_reason(const AnswerEnding& ending);

/// How the client wants its reply: "stream" and "stream_options", which only a stream may have.
struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};
StreamOptions read_stream_options(JsonFields& fields);

/// What all objects of a reply repeat.
struct ReplyHead {
  std::string id;
  std::string model;
  std::int64_t created = unix_seconds();

  /// One object, such as a "chat.completion".
  nlohmann::ordered_json object(const char* kind, nlohmann::ordered_json choices) const;
};

/// A reply as a whole; a protocol says how one answer looks.
class WholeOpenAiReply : public WholeReply {
 public:
  WholeOpenAiReply(std::shared_ptr<Exchange> exchange, std::size_t answers, ReplyHead head, const char* kind)
      : WholeReply(std::move(exchange), answers, ErrorStyle::openai), head_(std::move(head)), kind_(kind) {}

 protected:
  virtual nlohmann::ordered_json choice(std::size_t index, const Answer& answer) const = 0;

 private:
  nlohmann::ordered_json body(const std::vector<Answer>& answers, const Usage& usage) final;

  ReplyHead head_;
  const char* kind_;
};

/// A reply as a stream of chunks with one choice each, the usage where it is asked for, and "[DONE]".
class StreamedOpenAiReply : public Reply {
 public:
  StreamedOpenAiReply(std::shared_ptr<Exchange> exchange, ReplyHead head, const char* kind, bool include_usage);

  void start() override { stream_.start(); }
  void end(const Usage& usage) final;
  void fail(const ApiError& error) final;

 protected:
  void send_choice(const nlohmann::ordered_json& choice);

 private:
  EventStream stream_;
  std::string chunk_start_;  ///< a chunk as text, up to its choices
  bool include_usage_;
};

}  // namespace pergola
