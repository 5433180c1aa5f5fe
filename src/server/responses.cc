// OpenAI's newer protocol: POST /v1/responses. Nothing is stored, so there is no previous response to go on from.
#include "server/block_reply.h"
#include "server/chat_messages.h"
#include "server/conversation.h"
#include "server/handlers.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

/// The members of the request that a response repeats.
struct Echo {
  Json instructions = nullptr;
  Json max_output_tokens = nullptr;
  Json tools = Json::array();
  Json tool_choice = "auto";
  Json text = {{"format", {{"type", "text"}}}};
  Json metadata = Json::object();
  bool parallel_tool_calls = true;
  double temperature = 1;
  double top_p = 1;
};

Json text_part(const std::string& text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json item_of(const AnswerBlock& block, const char* status) {
  switch (block.kind) {
    case AnswerBlock::Kind::reasoning:
      return {{"id", block.id},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content", Json::array({{{"type", "reasoning_text"}, {"text", block.text}}})},
              {"status", status}};
    case AnswerBlock::Kind::tool_call:
      return {{"id", block.id},           {"type", "function_call"}, {"status", status},
              {"call_id", block.call_id}, {"name", block.name},      {"arguments", block.text}};
    case AnswerBlock::Kind::text:
      break;
  }
  return {{"id", block.id},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", Json::array({text_part(block.text)})}};
}

class ResponseReply final : public BlockReply {
 public:
  ResponseReply(std::shared_ptr<Exchange> exchange, std::string model, Echo echo, bool stream)
      : exchange_(exchange),
        stream_(std::move(exchange)),
        model_(std::move(model)),
        echo_(std::move(echo)),
        streaming_(stream) {}

  void start() override {
    if (!streaming_) return;
    stream_.start();
    send("response.created", {{"response", response("in_progress", nullptr)}});
    send("response.in_progress", {{"response", response("in_progress", nullptr)}});
  }

  void end(const Usage& usage) override {
    const char* status = ending().end == AnswerEnd::length ? "incomplete" : "completed";
    const Json made = response(status, &usage);
    if (!streaming_) return exchange_->respond({.body = to_text(made)});
    send(ending().end == AnswerEnd::length ? "response.incomplete" : "response.completed", {{"response", made}});
    stream_.finish();
  }

  void fail(const ApiError& error) override {
    if (!streaming_) return exchange_->respond(error_response(error, ErrorStyle::openai));
    Json failed = response("failed", nullptr);
    failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
    send("response.failed", {{"response", std::move(failed)}});
    stream_.finish();
  }

 protected:
  void opened(AnswerBlock& block) override {
    block.id = random_id(block.kind == AnswerBlock::Kind::text        ? "msg_"
                         : block.kind == AnswerBlock::Kind::reasoning ? "rs_"
                                                                      : "fc_");
    if (!streaming_) return;
    Json item = item_of(block, "in_progress");
    if (block.kind != AnswerBlock::Kind::tool_call) item["content"] = Json::array();
    send("response.output_item.added", {{"output_index", block.index}, {"item", std::move(item)}});
    if (block.kind == AnswerBlock::Kind::text) {
      send_part("response.content_part.added", block, {{"part", text_part("")}});
    }
  }

  void grew(const AnswerBlock& block, const std::string& more) override {
    if (!streaming_) return;
    switch (block.kind) {
      case AnswerBlock::Kind::reasoning:
        return send_part("response.reasoning_text.delta", block, {{"delta", more}});
      case AnswerBlock::Kind::text:
        return send_part("response.output_text.delta", block, {{"delta", more}, {"logprobs", Json::array()}});
      case AnswerBlock::Kind::tool_call:
        return send("response.function_call_arguments.delta",
                    {{"item_id", block.id}, {"output_index", block.index}, {"delta", more}});
    }
  }

  void closed(const AnswerBlock& block) override {
    if (!streaming_) return;
    switch (block.kind) {
      case AnswerBlock::Kind::reasoning:
        send_part("response.reasoning_text.done", block, {{"text", block.text}});
        break;
      case AnswerBlock::Kind::text:
        send_part("response.output_text.done", block, {{"text", block.text}, {"logprobs", Json::array()}});
        send_part("response.content_part.done", block, {{"part", text_part(block.text)}});
        break;
      case AnswerBlock::Kind::tool_call:
        send("response.function_call_arguments.done",
             {{"item_id", block.id}, {"output_index", block.index}, {"name", block.name}, {"arguments", block.text}});
        break;
    }
    send("response.output_item.done", {{"output_index", block.index}, {"item", item_of(block, "completed")}});
  }

 private:
  Json response(const char* status, const Usage* usage) const {
    const bool cut = std::string_view(status) == "incomplete";
    Json output = Json::array();
    if (usage != nullptr) {
      for (const AnswerBlock& block : blocks()) output.push_back(item_of(block, "completed"));
    }
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created_},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", cut ? Json{{"reason", "max_output_tokens"}} : Json(nullptr)},
            {"instructions", echo_.instructions},
            {"max_output_tokens", echo_.max_output_tokens},
            {"model", model_},
            {"output", std::move(output)},
            {"parallel_tool_calls", echo_.parallel_tool_calls},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", echo_.temperature},
            {"text", echo_.text},
            {"tool_choice", echo_.tool_choice},
            {"tools", echo_.tools},
            {"top_p", echo_.top_p},
            {"truncation", "disabled"},
            {"usage", usage != nullptr ? usage_of(*usage) : Json(nullptr)},
            {"metadata", echo_.metadata}};
  }

  static Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.answer_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.answer_tokens}};
  }

  void send(const char* type, const Json& members) {
    Json event{{"type", type}, {"sequence_number", next_event_++}};
    event.update(members);
    stream_.send(type, event);
  }

  void send_part(const char* type, const AnswerBlock& block, const Json& members) {
    Json all{{"item_id", block.id}, {"output_index", block.index}, {"content_index", 0}};
    all.update(members);
    send(type, all);
  }

  std::shared_ptr<Exchange> exchange_;
  EventStream stream_;
  std::string id_ = random_id("resp_");
  std::int64_t created_ = unix_seconds();
  std::string model_;
  Echo echo_;
  bool streaming_;
  std::int64_t next_event_ = 0;
};

/// One element of "input", put into messages of the common form.
void read_item(const Json& item, const std::string& path, Json& messages) {
  JsonFields fields(item, path + ".");
  const std::string type = fields.text("type").value_or("message");
  fields.ignore({"id", "status"});
  if (type == "message") {
    const std::string role = fields.required_text("role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      refuse(path + ".role", "must be user, assistant, system or developer, is '{}'", role.substr(0, 32));
    }
    messages.push_back({{"role", role}, {"content", read_text_content(fields.require("content"), path + ".content")}});
    fields.ignore({"phase"});
  } else if (type == "function_call") {
    const Json call{
        {"id", fields.required_text("call_id")},
        {"type", "function"},
        {"function", {{"name", fields.required_text("name")}, {"arguments", fields.required_text("arguments")}}}};
    // Calls of one turn follow each other.
    if (messages.empty() || messages.back()["role"] != "assistant") {
      messages.push_back({{"role", "assistant"}, {"content", ""}});
    }
    messages.back()["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", fields.required_text("call_id")},
                        {"content", read_text_content(fields.require("output"), path + ".output")}});
  } else if (type == "reasoning") {
    fields.ignore({"summary", "content", "encrypted_content"});
  } else {
    refuse(path + ".type", "must be message, function_call, function_call_output or reasoning, is '{}'",
           type.substr(0, 32));
  }
  fields.refuse_others();
}

Json read_input(JsonFields& fields, const RequestLimits& limits) {
  Json messages = Json::array();
  if (const auto instructions = fields.text("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json& input = fields.require("input");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return messages;
  }
  const Json& items = *fields.array("input", limits.messages);
  if (items.empty()) refuse("input", "is empty");
  for (std::size_t i = 0; i < items.size(); ++i) read_item(items[i], fmt::format("input[{}]", i), messages);
  return messages;
}

/// Tools in the form of chat completions: what is a member of the tool here is one of its function there.
Json read_tools(JsonFields& fields, const RequestLimits& limits) {
  const Json* list = fields.array("tools", limits.tools);
  if (list == nullptr || list->empty()) return nullptr;
  Json tools = Json::array();
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonFields tool((*list)[i], fmt::format("tools[{}].", i));
    if (const std::string type = tool.required_text("type"); type != "function") {
      refuse(tool.name_of("type"), "must be function, is '{}': this server runs no tools", type.substr(0, 32));
    }
    Json function{{"name", tool.required_text("name")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    if (const Json* parameters = tool.object("parameters")) function["parameters"] = *parameters;
    tool.boolean("strict");
    tool.refuse_others();
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

void read_tool_choice(JsonFields& fields, Conversation& conversation) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return;
  if (value->is_string()) {
    conversation.tool_choice = tool_choice_named(value->get<std::string>());
    return;
  }
  JsonFields choice(*value, "tool_choice.");
  if (choice.required_text("type") != "function") refuse("tool_choice.type", "must be function");
  conversation.tool_choice = ToolChoice::required;
  conversation.only_tool = choice.required_text("name");
  choice.refuse_others();
}

/// "text": its format has the members of chat completions' response_format.json_schema beside "type".
Json read_format(JsonFields& fields, Echo& echo) {
  const Json* text = fields.object("text");
  if (text == nullptr) return nullptr;
  JsonFields inner(*text, "text.");
  inner.ignore({"verbosity"});
  const Json* format = inner.object("format");
  inner.refuse_others();
  if (format == nullptr) return nullptr;
  echo.text = *text;
  JsonFields members(*format, "text.format.");
  const std::string type = members.required_text("type");
  if (type != "json_schema") return *format;
  Json schema = *format;
  schema.erase("type");
  return {{"type", type}, {"json_schema", std::move(schema)}};
}

void refuse_state(JsonFields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt", "context_management"}) {
    if (fields.find(name) != nullptr) refuse(name, "is not supported: this server stores nothing");
  }
  if (fields.boolean("background").value_or(false))
    refuse("background", "is not supported: this server stores nothing");
  if (const auto truncation = fields.text("truncation"); truncation && *truncation != "disabled") {
    refuse("truncation", "must be disabled");
  }
}

}  // namespace

void handle_responses(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  service.check_model(fields);
  refuse_state(fields);
  Echo echo;
  GenerationCall call;
  service.read_sampling(fields, call);
  require_one_answer(call);
  echo.temperature = call.sampling.temperature;
  echo.top_p = call.sampling.top_p;
  if (const auto most = fields.integer("max_output_tokens", 1, INT32_MAX)) {
    call.max_tokens = *most;
    echo.max_output_tokens = *most;
  }
  const bool stream = fields.boolean("stream").value_or(false);
  Conversation conversation;
  conversation.messages = read_input(fields, service.limits());
  conversation.tools = read_tools(fields, service.limits());
  read_tool_choice(fields, conversation);
  conversation.parallel_tools = fields.boolean("parallel_tool_calls").value_or(true);
  conversation.response_format = read_format(fields, echo);
  echo.parallel_tool_calls = conversation.parallel_tools;
  if (const Json* value = fields.find("instructions")) echo.instructions = *value;
  if (const Json* value = fields.find("tools")) echo.tools = *value;
  if (const Json* value = fields.find("tool_choice")) echo.tool_choice = *value;
  if (const Json* value = fields.object("metadata")) echo.metadata = *value;
  fields.ignore({"store", "reasoning", "include", "user", "service_tier", "stream_options", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "max_tool_calls", "top_logprobs"});
  fields.refuse_others();
  service.prepare(conversation, call);
  service.run(std::move(call), std::make_unique<ResponseReply>(to, service.name(), std::move(echo), stream), *to);
}

}  // namespace pergola
