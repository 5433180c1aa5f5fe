#include "server/openai_format.h"

namespace pergola {

std::string finish_reason(const AnswerEnding& ending) {
  switch (ending.end) {
    case AnswerEnd::length:
      return "length";
    case AnswerEnd::tool_calls:
      return "tool_calls";
    case AnswerEnd::stop:
      break;
  }
  return "stop";
}

nlohmann::ordered_json openai_usage(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.answer_tokens},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

StreamOptions read_stream_options(JsonFields& fields, bool stream) {
  const auto* value = fields.object("stream_options");
  if (value == nullptr) return {};
  if (!stream) refuse("stream_options", "is for streams only");
  JsonFields options(*value, "stream_options.");
  StreamOptions result{.include_usage = options.boolean("include_usage").value_or(false)};
  options.ignore({"include_obfuscation", "continuous_usage_stats"});
  options.refuse_others();
  return result;
}

}  // namespace pergola
