#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pergola {

/// What the tools of a request say about their parameters, for formats that write arguments as text.
class ToolSchemas {
 public:
  /// From OpenAI's list of tools, or null. What is no such list is skipped.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool has_tool(std::string_view name) const;

  /// The JSON of an argument that was written as `text`, by the type that the tool's schema gives the parameter:
  /// strings stay as they are, numbers, booleans, arrays and objects are read as JSON (or as Python writes them),
  /// "null" is null unless the parameter is a string. What cannot be read, and a parameter that is not known, is a
  /// string.
  std::string argument_json(std::string_view tool, std::string_view parameter, std::string_view text) const;

 private:
  const nlohmann::ordered_json* schema_of(std::string_view tool, std::string_view parameter) const;

  std::unordered_map<std::string, nlohmann::ordered_json> parameters_;  ///< "properties" by tool
};

/// The text of a JSON string, invalid UTF-8 replaced.
std::string json_string(std::string_view text);

}  // namespace pergola
