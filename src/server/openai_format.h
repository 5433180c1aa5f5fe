#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/json_fields.h"
#include "server/reply.h"

namespace pergola {

/// "stop", "length", "tool_calls".
std::string finish_reason(const AnswerEnding& ending);

/// The "usage" object of chat and text completions.
nlohmann::ordered_json openai_usage(const Usage& usage);

/// What a stream says of usage.
struct StreamOptions {
  bool include_usage = false;
};
/// "stream_options", which only a stream may have.
StreamOptions read_stream_options(JsonFields& fields, bool stream);

}  // namespace pergola
