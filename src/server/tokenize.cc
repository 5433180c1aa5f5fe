#include "server/chat_messages.h"
#include "server/conversation.h"
#include "server/handlers.h"

namespace pergola {

using Json = nlohmann::ordered_json;

void handle_tokenize(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  if (fields.find("model") != nullptr) service.check_model(fields);
  const auto prompt = fields.text("prompt");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  std::vector<std::int32_t> tokens;
  if (prompt) {
    if (fields.find("messages") != nullptr) refuse("messages", "and prompt exclude each other");
    tokens = service.tokenizer().encode(*prompt, add_special);
  } else if (fields.find("messages") != nullptr) {
    GenerationCall call;
    service.prepare({.messages = read_chat_messages(fields, service.limits())}, call);
    tokens = std::move(call.prompts[0]);
  } else {
    refuse("prompt", "is missing (or messages)");
  }
  fields.refuse_others();
  to->respond(
      {.body = to_text(
           Json{{"count", tokens.size()}, {"max_model_len", service.model().context}, {"tokens", std::move(tokens)}})});
}

void handle_detokenize(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  if (fields.find("model") != nullptr) service.check_model(fields);
  fields.require("tokens");
  const Json& list = *fields.array("tokens", std::size_t{1} << 20);
  std::vector<std::int32_t> tokens;
  for (const Json& element : list) {
    const bool is_id = element.is_number_integer() && element.get<double>() >= 0 &&
                       element.get<double>() < static_cast<double>(service.model().vocab_size);
    if (!is_id) refuse("tokens", "has {}, which is no token", to_text(element).substr(0, 64));
    tokens.push_back(element.get<std::int32_t>());
  }
  fields.refuse_others();
  to->respond({.body = to_text(Json{{"prompt", service.tokenizer().decode(tokens, false)}})});
}

}  // namespace pergola
