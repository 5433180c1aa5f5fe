#include "text/chat/tool_schemas.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "format/json.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxTypeDepth = 16;  // of anyOf within anyOf

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The types that a schema names, of the first alternative that is not null first.
void collect_types(const ordered_json& schema, std::vector<std::string>& types, int depth) {
  if (!schema.is_object() || depth > kMaxTypeDepth) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types.push_back(type->get<std::string>());
    if (type->is_array()) {
      for (const auto& entry : *type) {
        if (entry.is_string()) types.push_back(entry.get<std::string>());
      }
    }
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto alternatives = schema.find(key);
    if (alternatives == schema.end() || !alternatives->is_array()) continue;
    for (const auto& entry : *alternatives) collect_types(entry, types, depth + 1);
  }
  if (!types.empty()) return;
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const auto& value : *values) {
      types.emplace_back(value.is_string()           ? "string"
                         : value.is_boolean()        ? "boolean"
                         : value.is_number_integer() ? "integer"
                         : value.is_number()         ? "number"
                         : value.is_null()           ? "null"
                         : value.is_array()          ? "array"
                                                     : "object");
    }
  }
}

std::optional<std::string> read_number(std::string_view text, bool whole) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t integer = 0;
  const char* const end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, integer);
      error == std::errc() && stop == end && !text.empty()) {
    return std::to_string(integer);
  }
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  if (number == std::floor(number) && std::abs(number) < 9e15) return std::to_string(static_cast<std::int64_t>(number));
  if (whole) return std::nullopt;
  return ordered_json(number).dump();
}

// Python's literals as JSON: single quotes, True, False, None.
std::string python_to_json(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      std::string content;
      for (++i; i < text.size() && text[i] != c; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) {
          ++i;
          if (text[i] == '\'') {
            content += '\'';
          } else {
            content += '\\';
            content += text[i];
          }
        } else {
          content += text[i] == '"' ? "\\\"" : text.substr(i, 1);
        }
      }
      ++i;
      out += '"' + content + '"';
      continue;
    }
    bool replaced = false;
    for (const auto& [word, json] :
         {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")}) {
      if (!text.substr(i).starts_with(word)) continue;
      out += json;
      i += std::string_view(word).size();
      replaced = true;
      break;
    }
    if (!replaced) {
      out += c;
      ++i;
    }
  }
  return out;
}

std::optional<std::string> read_container(std::string_view text, bool array) {
  for (const std::string& candidate : {std::string(text), python_to_json(text)}) {
    try {
      const ordered_json value = parse_ordered_json(candidate, "");
      if (array ? value.is_array() : value.is_object()) return value.dump();
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

std::optional<std::string> read_as(const std::string& type, std::string_view text) {
  const std::string word = lowered(trimmed(text));
  if (type == "integer" || type == "number") return read_number(text, type == "integer");
  if (type == "boolean" && (word == "true" || word == "false")) return word;
  if (type == "array" || type == "object") return read_container(text, type == "array");
  if (type == "null" && (word == "null" || word == "none")) return "null";
  return std::nullopt;
}

}  // namespace

std::string json_string(std::string_view text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ToolSchemas::ToolSchemas(const ordered_json& tools) {
  if (!tools.is_array()) return;
  for (const ordered_json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) continue;
    const ordered_json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string()) continue;
    ordered_json properties = ordered_json::object();
    if (function.contains("parameters") && function["parameters"].is_object()) {
      const ordered_json& parameters = function["parameters"];
      if (parameters.contains("properties") && parameters["properties"].is_object())
        properties = parameters["properties"];
    }
    parameters_[function["name"].get<std::string>()] = std::move(properties);
  }
}

bool ToolSchemas::has_tool(std::string_view name) const {
  return parameters_.contains(std::string(name));
}

const ordered_json* ToolSchemas::schema_of(std::string_view tool, std::string_view parameter) const {
  const auto found = parameters_.find(std::string(tool));
  if (found == parameters_.end()) return nullptr;
  const auto schema = found->second.find(std::string(parameter));
  return schema == found->second.end() ? nullptr : &*schema;
}

std::string ToolSchemas::argument_json(std::string_view tool, std::string_view parameter, std::string_view text) const {
  std::vector<std::string> types;
  if (const ordered_json* schema = schema_of(tool, parameter)) collect_types(*schema, types, 0);
  const bool is_string = types.empty() || std::find(types.begin(), types.end(), "string") != types.end();
  const bool nullable = std::find(types.begin(), types.end(), "null") != types.end();
  const std::string word = lowered(trimmed(text));
  if ((word == "null" || word == "none") && (nullable || !is_string)) return "null";
  for (const std::string& type : types) {
    if (type == "string") break;
    if (auto json = read_as(type, text)) return std::move(*json);
  }
  return json_string(text);
}

}  // namespace pergola
