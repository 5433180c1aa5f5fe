#include "server/model_service.h"

#include <charconv>

#include "engine/vocabulary_rules.h"
#include "server/api_error.h"

namespace pergola {
namespace {

/// Conversations with the same key have the same grammar.
std::string grammar_key(const Conversation& conversation, bool with_tools) {
  if (with_tools && conversation.tool_choice == ToolChoice::required) {
    return to_text({conversation.tools, conversation.only_tool, conversation.parallel_tools});
  }
  return to_text(conversation.response_format);
}

}  // namespace

ModelService::ModelService(const ModelFacts& model, RequestQueue& queue, Tokenizer tokenizer,
                           std::optional<ChatTemplate> chat, const GenerationConfig& generation, std::string name,
                           const RequestLimits& limits)
    : tokenizer_(std::move(tokenizer)),
      context_{model, queue, tokenizer_, stop_tokens(generation, tokenizer_),
               sampled_tokens(tokenizer_, model.vocab_size)},
      chat_(std::move(chat)),
      grammars_(tokenizer_, model.vocab_size, context_.stop_tokens),
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
      if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= model().vocab_size) {
        refuse("logit_bias", "has '{}', which is not a token from 0 to {}", key.substr(0, 32), model().vocab_size - 1);
      }
      JsonFields one(*biases, "logit_bias.");
      sampling.logit_bias.emplace_back(token, static_cast<float>(one.number(key, -100, 100).value_or(0)));
    }
  }
  call.answers_per_prompt = fields.integer("n", 1, limits_.answers).value_or(1);
  call.ignore_stop_tokens = fields.boolean("ignore_eos").value_or(false);
}

std::optional<Grammar> ModelService::grammar_of(const Conversation& conversation, bool with_tools) const {
  if (with_tools && conversation.tool_choice == ToolChoice::required) {
    return Grammar::tool_calls(chat_->format().tools, conversation.tools, conversation.only_tool,
                               conversation.parallel_tools);
  }
  if (conversation.response_format.is_null()) return std::nullopt;
  JsonFields format(conversation.response_format, "response_format.");
  const std::string type = format.required_text("type");
  if (type == "text") return std::nullopt;
  if (type == "json_object") return Grammar::json_object();
  if (type == "regex") return Grammar::regex(format.required_text("pattern"), "response_format.pattern");
  if (type != "json_schema") {
    refuse("response_format.type", "must be text, json_object, json_schema or regex, is '{}'", type.substr(0, 32));
  }
  JsonFields members(format.require("json_schema"), "response_format.json_schema.");
  members.require("schema");
  return Grammar::json_schema(*members.object("schema"), "response_format.json_schema.schema");
}

void ModelService::prepare(const Conversation& conversation, GenerationCall& call) const {
  if (!chat_) {
    throw ApiError(400,
                   "this model has no chat template, and its tokenizer not the marks of ChatML; use /v1/completions");
  }
  const bool has_tools = !conversation.tools.is_null();
  if (conversation.tool_choice == ToolChoice::required && !has_tools) refuse("tool_choice", "needs tools");
  const bool with_tools = has_tools && conversation.tool_choice != ToolChoice::none;
  const ChatFormat& format = chat_->format();
  if (with_tools && format.tools == ToolFormat::none) {
    refuse("tools", "are not supported: the chat template of this model has no place for them");
  }
  const nlohmann::ordered_json tools = with_tools ? conversation.tools : nlohmann::ordered_json(nullptr);
  const auto prompt = std::make_shared<const std::string>(
      chat_->render(conversation.messages, tools, {.variables = conversation.template_variables}));
  call.prompts = {tokenizer_.encode(*prompt, false)};
  call.keep_special_tokens = format.marks_are_special;
  call.make_parser = [format, prompt, tools] {
    return make_output_parser(format, {.prompt = *prompt, .tools = tools});
  };
  const std::optional<Grammar> grammar = grammar_of(conversation, with_tools);
  if (!grammar) return;
  // What is thought stays free.
  const bool thinks = format.reasoning && starts_in_reasoning(*prompt, *format.reasoning);
  call.make_rule =
      grammars_.rule(*grammar, grammar_key(conversation, with_tools), thinks ? format.reasoning->close : "");
  call.ignore_stop_tokens = false;  // a complete text leaves nothing else
}

void ModelService::check_size(const GenerationCall& call, bool stream) const {
  if (stream || call.top_logprobs < 0) return;
  const std::int64_t context = model().context;
  const std::int64_t tokens = call.max_tokens > 0 ? std::min(call.max_tokens, context) : context;
  const std::int64_t values = static_cast<std::int64_t>(call.answers()) * tokens * (1 + call.top_logprobs);
  if (values <= limits_.whole_logprobs) return;
  refuse("logprobs", "would have up to {} values in one reply, more than {}: ask for fewer tokens, or for a stream",
         values, limits_.whole_logprobs);
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
