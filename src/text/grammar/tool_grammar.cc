#include "text/grammar/tool_grammar.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar/json_grammar.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;
using NodeId = AutomatonBuilder::NodeId;

struct Tool {
  std::string name;
  ordered_json parameters;
  std::string place;  ///< of the parameters, for errors
};

std::vector<Tool> read_tools(const ordered_json& tools, std::string_view only) {
  if (!tools.is_array() || tools.empty()) fail({.field = "tools"}, "must be a list of tools");
  std::vector<Tool> result;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = fmt::format("tools[{}].function", i);
    const ordered_json& tool = tools[i];
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) {
      fail({.field = place}, "must be an object");
    }
    const ordered_json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string())
      fail({.field = place + ".name"}, "must be a string");
    const std::string name = function["name"].get<std::string>();
    if (!only.empty() && name != only) continue;
    // Names stand in marks and in JSON as they are.
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
             c == '.';
    });
    if (!plain) fail({.field = place + ".name"}, "{} must be letters, digits, '_', '-' and '.'", in_quotes(name));
    ordered_json parameters = {{"type", "object"}, {"additionalProperties", false}};
    if (function.contains("parameters") && !function["parameters"].is_null()) parameters = function["parameters"];
    result.push_back({name, std::move(parameters), place + ".parameters"});
  }
  if (result.empty()) fail({.field = "tool_choice"}, "there is no tool {}", in_quotes(only));
  return result;
}

class ToolGrammar {
 public:
  ToolGrammar(AutomatonBuilder& builder, std::vector<Tool> tools, bool parallel)
      : b_(builder), tools_(std::move(tools)), parallel_(parallel) {}

  NodeId hermes(NodeId from) {
    return repeated(from, "\n", [&](NodeId at) {
      const NodeId inside = b_.text(b_.mark(at, "<tool_call>"), "\n");
      return b_.mark(b_.text(json_call(inside, "arguments"), "\n"), "</tool_call>");
    });
  }

  NodeId llama(NodeId from) { return json_call(from, "parameters"); }

  NodeId mistral(NodeId from) {
    const NodeId open = b_.mark(from, "[TOOL_CALLS]");
    const NodeId end = b_.node();
    const NodeId list = repeated(b_.text(open, "["), ", ", [&](NodeId at) { return json_call(at, "arguments"); });
    b_.empty(b_.text(list, "]"), end);
    for (const Tool& tool : tools_) {
      b_.empty(arguments(b_.mark(b_.text(open, tool.name), "[ARGS]"), tool), end);
    }
    return end;
  }

  NodeId qwen_xml(NodeId from) {
    return repeated(from, "\n", [&](NodeId at) {
      const NodeId open = b_.text(b_.mark(at, "<tool_call>"), "\n");
      const NodeId end = b_.node();
      for (const Tool& tool : tools_) {
        const NodeId name = b_.text(open, "<function=" + tool.name + ">\n");
        b_.empty(parameters(name, tool, {"<parameter=", ">\n", "\n</parameter>", "\n"}), end);
      }
      return b_.mark(b_.text(end, "</function>\n"), "</tool_call>");
    });
  }

  NodeId glm(NodeId from) {
    return repeated(from, "\n", [&](NodeId at) {
      const NodeId open = b_.mark(at, "<tool_call>");
      const NodeId end = b_.node();
      for (const Tool& tool : tools_) {
        const NodeId name = b_.text(open, tool.name + "\n");
        b_.empty(parameters(name, tool, {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n"}), end);
      }
      return b_.mark(end, "</tool_call>");
    });
  }

 private:
  /// How one parameter is written: before its name, before its value, behind it, and behind all that.
  struct Frame {
    std::string before_name;
    std::string before_value;
    std::string after_value;
    std::string after;
  };

  template <typename Call>
  NodeId repeated(NodeId from, std::string_view separator, Call call) {
    const NodeId start = b_.node();
    b_.empty(from, start);
    const NodeId end = call(start);
    if (parallel_) b_.empty(b_.text(end, separator), start);
    return end;
  }

  NodeId arguments(NodeId from, const Tool& tool) {
    return JsonGrammar(b_, tool.place).value_of(from, tool.parameters, tool.parameters);
  }

  // {"name": "N", "arguments": {...}}
  NodeId json_call(NodeId from, const std::string& key) {
    const NodeId end = b_.node();
    const NodeId open = b_.text(from, "{\"name\": \"");
    for (const Tool& tool : tools_) {
      b_.empty(arguments(b_.text(open, tool.name + "\", \"" + key + "\": "), tool), end);
    }
    return b_.text(end, "}");
  }

  // Parameters in the order of the schema, those that are not required may be left out.
  NodeId parameters(NodeId at, const Tool& tool, const Frame& frame) {
    const ordered_json& schema = tool.parameters;
    if (!schema.is_object()) fail({.field = tool.place}, "a schema must be an object");
    if (!schema.contains("properties")) return at;
    if (!schema["properties"].is_object()) fail({.field = tool.place + ".properties"}, "must be an object");
    const ordered_json required = schema.contains("required") ? schema["required"] : ordered_json::array();
    for (const auto& [key, value] : schema["properties"].items()) {
      if (key.find_first_of("<>\n") != std::string::npos)
        fail({.field = tool.place}, "{} is no name of a parameter", in_quotes(key));
      const NodeId text = b_.text(at, frame.before_name + key + frame.before_value);
      const NodeId after = b_.text(parameter_value(text, value, tool, key, frame.after_value), frame.after);
      if (std::find(required.begin(), required.end(), key) == required.end()) b_.empty(at, after);
      at = after;
    }
    return at;
  }

  // Strings stand as they are; everything else is JSON.
  NodeId parameter_value(NodeId from, const ordered_json& schema, const Tool& tool, const std::string& key,
                         const std::string& end) {
    const bool string = schema.is_object() && schema.contains("type") && schema["type"] == "string";
    if (string && schema.contains("enum") && schema["enum"].is_array()) {
      std::vector<std::string> texts;
      for (const auto& value : schema["enum"]) {
        if (value.is_string()) texts.push_back(value.get<std::string>());
      }
      if (!texts.empty()) return b_.text(b_.choice(from, texts), end);
    }
    if (string) return b_.text_until(from, end);
    JsonGrammar json(b_, tool.place + ".properties." + key);
    return b_.text(json.value_of(from, schema, tool.parameters), end);
  }

  AutomatonBuilder& b_;
  std::vector<Tool> tools_;
  bool parallel_;
};

}  // namespace

NodeId tool_call_texts(AutomatonBuilder& builder, NodeId from, ToolFormat format, const ordered_json& tools,
                       std::string_view only, bool parallel) {
  ToolGrammar grammar(builder, read_tools(tools, only), parallel);
  switch (format) {
    case ToolFormat::hermes:
      return grammar.hermes(from);
    case ToolFormat::qwen_xml:
      return grammar.qwen_xml(from);
    case ToolFormat::llama:
      return grammar.llama(from);
    case ToolFormat::mistral:
      return grammar.mistral(from);
    case ToolFormat::glm:
      return grammar.glm(from);
    case ToolFormat::none:
      break;
  }
  fail({.field = "tool_choice"}, "the model's chat template knows no tools");
}

}  // namespace pergola
