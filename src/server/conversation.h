#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pergola {

enum class ToolChoice : std::uint8_t { automatic, none, required };

/// What a chat is asked for, whatever its protocol.
struct Conversation {
  nlohmann::ordered_json messages;         ///< as ChatTemplate::render takes them
  nlohmann::ordered_json tools = nullptr;  ///< OpenAI's list, or null
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string only_tool;  ///< with `required`: the one that must be called; empty: any
  bool parallel_tools = true;
  nlohmann::ordered_json response_format = nullptr;  ///< OpenAI's, or null
  nlohmann::ordered_json template_variables = nlohmann::ordered_json::object();
};

/// "auto", "none", "required". Throws ApiError for another word.
ToolChoice tool_choice_named(const std::string& word);

}  // namespace pergola
