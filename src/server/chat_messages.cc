#include "server/chat_messages.h"

#include <array>

#include "server/api_error.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

Json read_tool_calls(const Json& calls, const std::string& path) {
  Json result = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    JsonFields fields(calls[i], fmt::format("{}[{}].", path, i));
    const Json& function = fields.require("function");
    JsonFields inner(function, fields.name_of("function."));
    Json call{{"id", fields.text("id").value_or("")},
              {"type", "function"},
              {"function", {{"name", inner.required_text("name")}}}};
    const Json* arguments = inner.find("arguments");
    call["function"]["arguments"] = arguments == nullptr ? Json::object() : *arguments;
    result.push_back(std::move(call));
  }
  return result;
}

Json read_message(const Json& message, const std::string& path) {
  static constexpr std::array<std::string_view, 5> kRoles{"system", "user", "assistant", "tool", "developer"};
  JsonFields fields(message, path + ".");
  const std::string role = fields.required_text("role");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    refuse(path + ".role", "must be system, developer, user, assistant or tool, is '{}'", role.substr(0, 32));
  }
  Json result{{"role", role}};
  const Json* content = fields.find("content");
  const Json* calls = fields.array("tool_calls", 256);
  const bool may_be_empty = role == "assistant";
  if (content == nullptr && !may_be_empty) refuse(path + ".content", "is missing");
  result["content"] = content != nullptr ? read_text_content(*content, path + ".content") : "";
  // Both spellings are in use.
  auto reasoning = fields.text("reasoning_content");
  const auto other = fields.text("reasoning");
  if (!reasoning) reasoning = other;
  if (reasoning) result["reasoning_content"] = *reasoning;
  if (calls != nullptr && !calls->empty()) result["tool_calls"] = read_tool_calls(*calls, path + ".tool_calls");
  if (const auto name = fields.text("name")) result["name"] = *name;
  if (const auto id = fields.text("tool_call_id")) result["tool_call_id"] = *id;
  fields.ignore({"refusal", "annotations", "audio", "function_call"});
  fields.refuse_others();
  return result;
}

}  // namespace

std::string read_text_content(const Json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse(name, "must be a string or an array of parts, is {}", kind_of(content));
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", name, i);
    JsonFields part(content[i], path + ".");
    const std::string type = part.required_text("type");
    if (type != "text" && type != "input_text" && type != "output_text") {
      refuse(path + ".type", "must be text, is '{}': this server takes nothing else", type.substr(0, 32));
    }
    text += part.required_text("text");
  }
  return text;
}

Json read_chat_messages(JsonFields& fields, const RequestLimits& limits) {
  fields.require("messages");
  const Json& messages = *fields.array("messages", limits.messages);
  if (messages.empty()) refuse("messages", "is empty");
  Json result = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    result.push_back(read_message(messages[i], fmt::format("messages[{}]", i)));
  }
  return result;
}

}  // namespace pergola
