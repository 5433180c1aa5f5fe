#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/json_fields.h"
#include "server/model_service.h"

namespace pergola {

/// "messages" of a chat completion, checked and with "content" a string: the form that ChatTemplate::render takes.
nlohmann::ordered_json read_chat_messages(JsonFields& fields, const RequestLimits& limits);

/// The text of "content": a string, or an array of text parts. What is not text is refused.
std::string read_text_content(const nlohmann::ordered_json& content, const std::string& name);

}  // namespace pergola
