#include "server/chat_messages.h"
#include "server/conversation.h"
#include "server/handlers.h"
#include "server/openai_format.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json logprobs_of(const std::vector<TokenText>& tokens) {
  Json content = Json::array();
  for (const TokenText& token : tokens) {
    Json top = Json::array();
    for (const auto& [text, logprob] : token.top) {
      top.push_back({{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}});
    }
    content.push_back({{"token", token.text},
                       {"logprob", token.logprob},
                       {"bytes", bytes_of(token.text)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

class WholeChat final : public WholeOpenAiReply {
 public:
  WholeChat(std::shared_ptr<Exchange> exchange, std::size_t answers, ReplyHead head)
      : WholeOpenAiReply(std::move(exchange), answers, std::move(head), "chat.completion") {}

 protected:
  Json choice(std::size_t index, const Answer& answer) const override {
    const AnswerPiece& all = answer.all;
    const bool only_calls = all.text.empty() && !all.tool_calls.empty();
    Json message{{"role", "assistant"}, {"content", only_calls ? Json(nullptr) : Json(all.text)}, {"refusal", nullptr}};
    if (!all.reasoning.empty()) message["reasoning_content"] = all.reasoning;
    for (const ToolCallPiece& call : all.tool_calls) {
      message["tool_calls"].push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", all.tokens.empty() ? Json(nullptr) : logprobs_of(all.tokens)},
            {"finish_reason", finish_reason(answer.ending)}};
  }
};

class StreamedChat final : public StreamedOpenAiReply {
 public:
  StreamedChat(std::shared_ptr<Exchange> exchange, std::size_t answers, ReplyHead head, bool include_usage)
      : StreamedOpenAiReply(std::move(exchange), std::move(head), "chat.completion.chunk", include_usage),
        answers_(answers) {}

  void start() override {
    StreamedOpenAiReply::start();
    for (std::size_t i = 0; i < answers_; ++i) send(i, {{"role", "assistant"}, {"content", ""}}, {}, nullptr);
  }

  void piece(std::size_t answer, const AnswerPiece& piece) override {
    Json delta = Json::object();
    if (!piece.text.empty()) delta["content"] = piece.text;
    if (!piece.reasoning.empty()) delta["reasoning_content"] = piece.reasoning;
    for (const ToolCallPiece& call : piece.tool_calls) {
      Json function = Json::object();
      if (!call.name.empty()) function["name"] = call.name;
      function["arguments"] = call.arguments;
      Json item{{"index", call.index}};
      if (!call.id.empty()) item["id"] = call.id;
      if (!call.id.empty()) item["type"] = "function";
      item["function"] = std::move(function);
      delta["tool_calls"].push_back(std::move(item));
    }
    send(answer, std::move(delta), piece.tokens, nullptr);
  }

  void end_answer(std::size_t answer, const AnswerEnding& ending) override {
    send(answer, Json::object(), {}, &ending);
  }

 private:
  void send(std::size_t answer, Json delta, const std::vector<TokenText>& tokens, const AnswerEnding* ending) {
    send_choice({{"index", answer},
                 {"delta", std::move(delta)},
                 {"logprobs", tokens.empty() ? Json(nullptr) : logprobs_of(tokens)},
                 {"finish_reason", ending != nullptr ? Json(finish_reason(*ending)) : Json(nullptr)}});
  }

  std::size_t answers_;
};

void read_logprobs(const ModelService& service, JsonFields& fields, GenerationCall& call) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, service.limits().top_logprobs);
  if (top && !wanted) refuse("top_logprobs", "needs logprobs to be true");
  if (wanted) call.top_logprobs = top.value_or(0);
}

void read_max_tokens(JsonFields& fields, GenerationCall& call) {
  const auto old_name = fields.integer("max_tokens", 1, INT32_MAX);
  const auto new_name = fields.integer("max_completion_tokens", 1, INT32_MAX);
  if (old_name && new_name && *old_name != *new_name) refuse("max_tokens", "contradicts max_completion_tokens");
  call.max_tokens = new_name ? *new_name : old_name.value_or(0);
}

Json read_tools(JsonFields& fields, const RequestLimits& limits) {
  const Json* list = fields.array("tools", limits.tools);
  if (list == nullptr || list->empty()) return nullptr;
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonFields tool((*list)[i], fmt::format("tools[{}].", i));
    if (const std::string type = tool.required_text("type"); type != "function") {
      refuse(tool.name_of("type"), "must be function, is '{}'", type.substr(0, 32));
    }
    JsonFields function(tool.require("function"), tool.name_of("function."));
    function.required_text("name");
    function.text("description");
    function.object("parameters");
    function.ignore({"strict"});
    function.refuse_others();
    tool.refuse_others();
  }
  return *list;
}

void read_tool_choice(JsonFields& fields, Conversation& conversation) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return;
  if (conversation.tools.is_null()) refuse("tool_choice", "needs tools");
  if (value->is_string()) {
    conversation.tool_choice = tool_choice_named(value->get<std::string>());
    return;
  }
  JsonFields choice(*value, "tool_choice.");
  if (choice.required_text("type") != "function") refuse("tool_choice.type", "must be function");
  JsonFields function(choice.require("function"), "tool_choice.function.");
  conversation.tool_choice = ToolChoice::required;
  conversation.only_tool = function.required_text("name");
  function.refuse_others();
  choice.refuse_others();
}

Conversation read_conversation(JsonFields& fields, const RequestLimits& limits) {
  Conversation conversation;
  conversation.messages = read_chat_messages(fields, limits);
  conversation.tools = read_tools(fields, limits);
  read_tool_choice(fields, conversation);
  conversation.parallel_tools = fields.boolean("parallel_tool_calls").value_or(true);
  if (const Json* format = fields.object("response_format")) conversation.response_format = *format;
  if (const Json* variables = fields.object("chat_template_kwargs")) conversation.template_variables = *variables;
  if (const auto effort = fields.text("reasoning_effort")) {
    conversation.template_variables["reasoning_effort"] = *effort;
    if (*effort == "none") conversation.template_variables["enable_thinking"] = false;
  }
  return conversation;
}

}  // namespace

void handle_chat_completions(const ModelService& service, const HttpRequest& request,
                             const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  service.check_model(fields);
  GenerationCall call;
  service.read_sampling(fields, call);
  call.stop = service.read_stop(fields, "stop");
  read_max_tokens(fields, call);
  read_logprobs(service, fields, call);
  const StreamOptions options = read_stream_options(fields);
  const Conversation conversation = read_conversation(fields, service.limits());
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"});
  fields.refuse_others();
  service.prepare(conversation, call);

  service.check_size(call, options.stream);
  ReplyHead head{.id = random_id("chatcmpl-"), .model = service.name()};
  std::unique_ptr<Reply> reply;
  if (options.stream) {
    reply = std::make_unique<StreamedChat>(to, call.answers(), std::move(head), options.include_usage);
  } else {
    reply = std::make_unique<WholeChat>(to, call.answers(), std::move(head));
  }
  service.run(std::move(call), std::move(reply), *to);
}

}  // namespace pergola
