#include "server/model_service.h"

#include <charconv>

#include "engine/vocabulary_rules.h"
#include "server/api_error.h"

namespace pergola {

ModelService::ModelService(const Engine& engine, EngineLoop& loop, Tokenizer tokenizer,
                           const GenerationConfig& generation, std::string name, const RequestLimits& limits)
    : engine_(engine),
      loop_(loop),
      tokenizer_(std::move(tokenizer)),
      context_{engine, loop, tokenizer_, stop_tokens(generation, tokenizer_),
               sampled_tokens(tokenizer_, engine.info().vocab_size)},
      chat_(ChatPrompt::chatml(tokenizer_)),
      defaults_(sampling_defaults(generation)),
      name_(std::move(name)),
      limits_(limits),
      created_(unix_seconds()) {}

void ModelService::check_model(JsonFields& fields) const {
  const std::string asked = fields.required_text("model");
  if (asked != name_) {
    throw ApiError(404, fmt::format("there is no model '{}' here, only '{}'", asked.substr(0, 128), name_), "model",
                   "model_not_found");
  }
}

void ModelService::read_sampling(JsonFields& fields, GenerationCall& call) const {
  SamplingOptions& sampling = call.sampling;
  sampling = defaults_;
  sampling.temperature = fields.number("temperature", 0, 100).value_or(sampling.temperature);
  sampling.top_p = fields.number("top_p", 0, 1).value_or(sampling.top_p);
  // -1 is what some clients send for "off".
  sampling.top_k = std::max<std::int64_t>(0, fields.integer("top_k", -1, INT32_MAX).value_or(sampling.top_k));
  sampling.min_p = fields.number("min_p", 0, 1).value_or(sampling.min_p);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 100).value_or(sampling.repetition_penalty);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(sampling.frequency_penalty);
  sampling.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(sampling.presence_penalty);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) sampling.seed = static_cast<std::uint64_t>(*seed);
  if (const auto* biases = fields.object("logit_bias")) {
    if (biases->size() > limits_.logit_biases) {
      refuse("logit_bias", "has {} members, more than {}", biases->size(), limits_.logit_biases);
    }
    for (const auto& [key, value] : biases->items()) {
      std::int32_t token = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
      if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= engine_.info().vocab_size) {
        refuse("logit_bias", "has '{}', which is not a token from 0 to {}", key.substr(0, 32),
               engine_.info().vocab_size - 1);
      }
      JsonFields one(*biases, "logit_bias.");
      sampling.logit_bias.emplace_back(token, static_cast<float>(one.number(key, -100, 100).value_or(0)));
    }
  }
  call.answers_per_prompt = fields.integer("n", 1, limits_.answers).value_or(1);
  call.ignore_stop_tokens = fields.boolean("ignore_eos").value_or(false);
}

void ModelService::prepare(const Conversation& conversation, GenerationCall& call) const {
  if (!chat_) {
    throw ApiError(400,
                   "this model has no chat template, and its tokenizer not the marks of ChatML; use /v1/completions");
  }
  if (!conversation.tools.is_null()) refuse("tools", "are not supported by this model's template");
  if (!conversation.response_format.is_null()) refuse("response_format", "is not supported");
  call.prompts = {tokenizer_.encode(chat_->render(conversation.messages), false)};
}

ToolChoice tool_choice_named(const std::string& word) {
  if (word == "auto") return ToolChoice::automatic;
  if (word == "none") return ToolChoice::none;
  if (word == "required") return ToolChoice::required;
  refuse("tool_choice", "must be auto, none, required or an object, is '{}'", word.substr(0, 32));
}

void require_one_answer(const GenerationCall& call) {
  if (call.answers_per_prompt != 1) refuse("n", "must be 1 here, is {}", call.answers_per_prompt);
}

std::vector<std::string> ModelService::read_stop(JsonFields& fields, std::string_view name) const {
  const auto* value = fields.find(name);
  std::vector<std::string> strings;
  const auto add = [&](const nlohmann::ordered_json& element) {
    const std::string full = fields.name_of(name);
    if (!element.is_string()) refuse(full, "must be a string or an array of strings, has {}", kind_of(element));
    auto text = element.get<std::string>();
    if (text.empty()) refuse(full, "has an empty string");
    if (text.size() > limits_.stop_string_bytes) {
      refuse(full, "has a string of {} bytes, more than {}", text.size(), limits_.stop_string_bytes);
    }
    strings.push_back(std::move(text));
  };
  if (value == nullptr) return strings;
  if (!value->is_array()) {
    add(*value);
    return strings;
  }
  for (const auto& element : *fields.array(name, limits_.stop_strings)) add(element);
  return strings;
}

}  // namespace pergola
