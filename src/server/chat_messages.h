#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/json_fields.h"
#include "server/model_service.h"

namespace pergola {

/// "messages" of a chat completion, checked and put into the one form that chat templates read: "content" a string,
/// "arguments" of tool calls objects, "developer" called "system".
nlohmann::ordered_json read_chat_messages(JsonFields& fields, const RequestLimits& limits);

/// Templates walk through arguments, so they get them as an object; what is no JSON stays a text.
nlohmann::ordered_json parsed_arguments(const std::string& text);

/// The text of "content": a string, or an array of text parts. What is not text is refused.
std::string read_text_content(const nlohmann::ordered_json& content, const std::string& name);

}  // namespace pergola
