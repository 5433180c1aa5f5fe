#include "server/openai_format.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

/// What comes after the choices of an object that ends with them.
constexpr std::string_view kAfterChoices = "]}";

Json usage_of(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.answer_tokens},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

}  // namespace

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

StreamOptions read_stream_options(JsonFields& fields) {
  StreamOptions result{.stream = fields.boolean("stream").value_or(false)};
  const Json* value = fields.object("stream_options");
  if (value == nullptr) return result;
  if (!result.stream) refuse("stream_options", "is for streams only");
  JsonFields options(*value, "stream_options.");
  result.include_usage = options.boolean("include_usage").value_or(false);
  options.ignore({"include_obfuscation", "continuous_usage_stats"});
  options.refuse_others();
  return result;
}

Json ReplyHead::object(const char* kind, Json choices) const {
  return {{"id", id}, {"object", kind}, {"created", created}, {"model", model}, {"choices", std::move(choices)}};
}

Json WholeOpenAiReply::body(const std::vector<Answer>& answers, const Usage& usage) {
  Json choices = Json::array();
  for (std::size_t i = 0; i < answers.size(); ++i) choices.push_back(choice(i, answers[i]));
  Json object = head_.object(kind_, std::move(choices));
  object["usage"] = usage_of(usage);
  return object;
}

StreamedOpenAiReply::StreamedOpenAiReply(std::shared_ptr<Exchange> exchange, ReplyHead head, const char* kind,
                                         bool include_usage)
    : stream_(std::move(exchange)),
      chunk_start_(to_text(head.object(kind, Json::array()))),
      include_usage_(include_usage) {
  chunk_start_.resize(chunk_start_.size() - kAfterChoices.size());
}

void StreamedOpenAiReply::send_choice(const Json& choice) {
  stream_.send_text("", chunk_start_ + to_text(choice) + std::string(kAfterChoices));
}

void StreamedOpenAiReply::end(const Usage& usage) {
  if (include_usage_) stream_.send_text("", chunk_start_ + "],\"usage\":" + to_text(usage_of(usage)) + "}");
  stream_.send_text("", "[DONE]");
  stream_.finish();
}

void StreamedOpenAiReply::fail(const ApiError& error) {
  stream_.send_text("", error_event(error, ErrorStyle::openai));
  stream_.finish();
}

}  // namespace pergola
