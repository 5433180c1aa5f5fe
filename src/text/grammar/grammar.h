#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_format.h"

namespace pergola {

class Automaton;

/// A set of texts, which output can be kept to with a TokenConstraint. Immutable; copies share the automaton.
class Grammar {
 public:
  /// Any JSON object, nested as deep as the text goes, with bounded white space.
  static Grammar json_object();

  /// JSON that `schema` allows. Members come in the order of "properties"; white space is bounded. Throws Error naming
  /// a keyword that is not supported (docs/chat.md lists them), or the place of what is wrong. `name` stands for the
  /// schema in errors, e.g. "response_format.json_schema.schema".
  static Grammar json_schema(const nlohmann::ordered_json& schema, const std::string& name);

  /// Texts that match the whole of a regular expression. Throws Error for syntax that is not supported.
  static Grammar regex(std::string_view pattern, const std::string& name);

  /// One of these texts.
  static Grammar choice(const std::vector<std::string>& texts);

  /// Calls of `tools` (OpenAI's list) in a model's own format, at least one; only of the tool `only` when it is not
  /// empty, and a single call unless `parallel`. Throws Error for a format that is none, an unknown tool, or parameters
  /// whose schema is not supported.
  static Grammar tool_calls(ToolFormat format, const nlohmann::ordered_json& tools, std::string_view only,
                            bool parallel);

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }

 private:
  explicit Grammar(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

  std::shared_ptr<const Automaton> automaton_;
};

}  // namespace pergola
