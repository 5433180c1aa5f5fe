// Anthropic's protocol: POST /v1/messages.
#include <algorithm>

#include "base/error.h"
#include "format/json.h"
#include "server/block_reply.h"
#include "server/chat_messages.h"
#include "server/conversation.h"
#include "server/handlers.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

/// Arguments as an object: what a constrained or well-behaved model writes. What is no JSON is shown as it is.
Json parsed_input(const std::string& text) {
  if (text.empty()) return Json::object();
  try {
    return parse_ordered_json(text, "input");
  } catch (const Error&) {
    return {{"text", text}};
  }
}

Json content_block(const AnswerBlock& block) {
  switch (block.kind) {
    case AnswerBlock::Kind::reasoning:
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case AnswerBlock::Kind::tool_call:
      return {{"type", "tool_use"}, {"id", block.call_id}, {"name", block.name}, {"input", parsed_input(block.text)}};
    case AnswerBlock::Kind::text:
      break;
  }
  return {{"type", "text"}, {"text", block.text}};
}

std::string stop_reason(const AnswerEnding& ending) {
  if (ending.stop_string) return "stop_sequence";
  if (ending.end == AnswerEnd::length) return "max_tokens";
  return ending.end == AnswerEnd::tool_calls ? "tool_use" : "end_turn";
}

Json text_or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}

class MessageReply final : public BlockReply {
 public:
  MessageReply(std::shared_ptr<Exchange> exchange, std::string model, std::int64_t prompt_tokens, bool stream)
      : exchange_(exchange),
        stream_(std::move(exchange)),
        model_(std::move(model)),
        prompt_tokens_(prompt_tokens),
        streaming_(stream) {}

  void start() override {
    if (!streaming_) return;
    stream_.start();
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = usage_of({.prompt_tokens = prompt_tokens_});
    send("message_start", {{"message", std::move(message)}});
  }

  void end(const Usage& usage) override {
    if (streaming_) {
      send("message_delta",
           {{"delta", {{"stop_reason", stop_reason(ending())}, {"stop_sequence", text_or_null(ending().stop_string)}}},
            {"usage", usage_of(usage)}});
      send("message_stop", Json::object());
      stream_.finish();
      return;
    }
    Json message = head();
    message["content"] = Json::array();
    for (const AnswerBlock& block : blocks()) message["content"].push_back(content_block(block));
    message["stop_reason"] = stop_reason(ending());
    message["stop_sequence"] = text_or_null(ending().stop_string);
    message["usage"] = usage_of(usage);
    exchange_->respond({.body = to_text(message)});
  }

  void fail(const ApiError& error) override {
    if (!streaming_) return exchange_->respond(error_response(error, ErrorStyle::anthropic));
    stream_.send_text("error", error_event(error, ErrorStyle::anthropic));
    stream_.finish();
  }

 protected:
  void opened(AnswerBlock& block) override {
    if (streaming_) send("content_block_start", {{"index", block.index}, {"content_block", content_block(block)}});
  }
  void grew(const AnswerBlock& block, const std::string& more) override {
    if (!streaming_) return;
    Json delta;
    switch (block.kind) {
      case AnswerBlock::Kind::reasoning:
        delta = {{"type", "thinking_delta"}, {"thinking", more}};
        break;
      case AnswerBlock::Kind::text:
        delta = {{"type", "text_delta"}, {"text", more}};
        break;
      case AnswerBlock::Kind::tool_call:
        delta = {{"type", "input_json_delta"}, {"partial_json", more}};
        break;
    }
    send("content_block_delta", {{"index", block.index}, {"delta", std::move(delta)}});
  }
  void closed(const AnswerBlock& block) override {
    if (streaming_) send("content_block_stop", {{"index", block.index}});
  }

 private:
  Json head() const { return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_}}; }

  static Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.answer_tokens}};
  }

  void send(const char* type, const Json& members) {
    Json event{{"type", type}};
    event.update(members);
    stream_.send(type, event);
  }

  std::shared_ptr<Exchange> exchange_;
  EventStream stream_;
  std::string id_ = random_id("msg_");
  std::string model_;
  std::int64_t prompt_tokens_;
  bool streaming_;
};

/// Puts one message's blocks into messages of the common form: results of tools are messages of their own there.
class MessageReader {
 public:
  explicit MessageReader(Json& to) : to_(to) {}

  void read(const Json& message, const std::string& path) {
    JsonFields fields(message, path + ".");
    const std::string role = fields.required_text("role");
    if (role != "user" && role != "assistant") {
      refuse(path + ".role", "must be user or assistant, is '{}'", role.substr(0, 32));
    }
    const Json& content = fields.require("content");
    fields.refuse_others();
    Json made{{"role", role}, {"content", ""}};
    if (content.is_string()) {
      made["content"] = content;
    } else {
      if (!content.is_array()) refuse(path + ".content", "must be a string or an array, is {}", kind_of(content));
      for (std::size_t i = 0; i < content.size(); ++i)
        read_block(content[i], fmt::format("{}.content[{}]", path, i), made);
    }
    const bool only_results = role == "user" && results_ && made["content"].get_ref<const std::string&>().empty();
    if (!only_results) to_.push_back(std::move(made));
    results_ = false;
  }

 private:
  void read_block(const Json& block, const std::string& path, Json& made) {
    JsonFields fields(block, path + ".");
    const std::string type = fields.required_text("type");
    fields.ignore({"cache_control", "citations"});
    auto& text = made["content"].get_ref<std::string&>();
    if (type == "text") {
      text += fields.required_text("text");
    } else if (type == "thinking") {
      made["reasoning_content"] = fields.required_text("thinking");
      fields.ignore({"signature"});
    } else if (type == "redacted_thinking") {
      fields.ignore({"data"});
    } else if (type == "tool_use" && made["role"] == "assistant") {
      made["tool_calls"].push_back(
          {{"id", fields.required_text("id")},
           {"type", "function"},
           {"function", {{"name", fields.required_text("name")}, {"arguments", fields.require("input")}}}});
    } else if (type == "tool_result" && made["role"] == "user") {
      const Json* content = fields.find("content");
      to_.push_back({{"role", "tool"},
                     {"tool_call_id", fields.required_text("tool_use_id")},
                     {"content", content == nullptr ? "" : read_text_content(*content, path + ".content")}});
      fields.boolean("is_error");
      results_ = true;
    } else {
      refuse(path + ".type", "must be text, thinking, tool_use or tool_result where it belongs, is '{}'",
             type.substr(0, 32));
    }
    fields.refuse_others();
  }

  Json& to_;
  bool results_ = false;
};

Json read_messages(JsonFields& fields, const RequestLimits& limits) {
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    messages.push_back({{"role", "system"}, {"content", read_text_content(*system, "system")}});
  }
  fields.require("messages");
  const Json& list = *fields.array("messages", limits.messages);
  if (list.empty()) refuse("messages", "is empty");
  MessageReader reader(messages);
  for (std::size_t i = 0; i < list.size(); ++i) reader.read(list[i], fmt::format("messages[{}]", i));
  return messages;
}

Json read_tools(JsonFields& fields, const RequestLimits& limits) {
  const Json* list = fields.array("tools", limits.tools);
  if (list == nullptr || list->empty()) return nullptr;
  Json tools = Json::array();
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonFields tool((*list)[i], fmt::format("tools[{}].", i));
    if (const auto type = tool.text("type"); type && *type != "custom") {
      refuse(tool.name_of("type"), "must be custom, is '{}': this server runs no tools", type->substr(0, 32));
    }
    Json function{{"name", tool.required_text("name")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    tool.require("input_schema");
    function["parameters"] = *tool.object("input_schema");
    tool.ignore({"cache_control"});
    tool.refuse_others();
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

void read_tool_choice(JsonFields& fields, Conversation& conversation) {
  const Json* value = fields.object("tool_choice");
  if (value == nullptr) return;
  JsonFields choice(*value, "tool_choice.");
  const std::string type = choice.required_text("type");
  if (type == "none") {
    conversation.tool_choice = ToolChoice::none;
  } else if (type == "any") {
    conversation.tool_choice = ToolChoice::required;
  } else if (type == "tool") {
    conversation.tool_choice = ToolChoice::required;
    conversation.only_tool = choice.required_text("name");
  } else if (type != "auto") {
    refuse("tool_choice.type", "must be auto, any, tool or none, is '{}'", type.substr(0, 32));
  }
  conversation.parallel_tools = !choice.boolean("disable_parallel_tool_use").value_or(false);
  choice.refuse_others();
}

void read_thinking(JsonFields& fields, Conversation& conversation) {
  const Json* value = fields.object("thinking");
  if (value == nullptr) return;
  JsonFields thinking(*value, "thinking.");
  const std::string type = thinking.required_text("type");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    refuse("thinking.type", "must be enabled, adaptive or disabled, is '{}'", type.substr(0, 32));
  }
  conversation.template_variables["enable_thinking"] = type != "disabled";
  thinking.ignore({"budget_tokens", "display"});
  thinking.refuse_others();
}

Conversation read_conversation(JsonFields& fields, const ModelService& service) {
  Conversation conversation;
  conversation.messages = read_messages(fields, service.limits());
  conversation.tools = read_tools(fields, service.limits());
  read_tool_choice(fields, conversation);
  read_thinking(fields, conversation);
  return conversation;
}

}  // namespace

void handle_messages(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  service.check_model(fields);
  GenerationCall call{.tool_call_id = "toolu_"};
  service.read_sampling(fields, call);
  require_one_answer(call);
  fields.require("max_tokens");
  call.max_tokens = *fields.integer("max_tokens", 1, INT32_MAX);
  call.stop = service.read_stop(fields, "stop_sequences");
  const bool stream = fields.boolean("stream").value_or(false);
  const Conversation conversation = read_conversation(fields, service);
  fields.ignore({"metadata", "service_tier", "cache_control", "container", "inference_geo"});
  fields.refuse_others();
  service.prepare(conversation, call);
  const auto prompt_tokens = static_cast<std::int64_t>(call.prompts[0].size());
  service.run(std::move(call), std::make_unique<MessageReply>(to, service.name(), prompt_tokens, stream), *to);
}

void handle_count_tokens(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  service.check_model(fields);
  const Conversation conversation = read_conversation(fields, service);
  fields.refuse_others();
  GenerationCall call;
  service.prepare(conversation, call);
  to->respond({.body = to_text(Json{{"input_tokens", call.prompts[0].size()}})});
}

}  // namespace pergola
