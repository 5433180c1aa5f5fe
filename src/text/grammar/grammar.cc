#include "text/grammar/grammar.h"

#include "base/error.h"
#include "text/grammar/automaton.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/regex_grammar.h"
#include "text/grammar/tool_grammar.h"

namespace pergola {
namespace {

/// Builds the automaton of a grammar of which `fill` writes the outermost rule.
template <typename Fill>
std::shared_ptr<const Automaton> built(const std::string& name, Fill fill) {
  AutomatonBuilder builder;
  const auto start = builder.start_rule();
  builder.end_rule(fill(builder, start));
  auto automaton = std::make_shared<Automaton>();
  if (!builder.build(start, *automaton)) fail({.field = name}, "no text satisfies it");
  return automaton;
}

}  // namespace

Grammar Grammar::json_object() {
  return Grammar(built("json_object", [](AutomatonBuilder& builder, auto from) {
    return JsonGrammar(builder, "json_object").any_object(from);
  }));
}

Grammar Grammar::json_schema(const nlohmann::ordered_json& schema, const std::string& name) {
  return Grammar(built(name, [&](AutomatonBuilder& builder, auto from) {
    return JsonGrammar(builder, name).value_of(from, schema, schema);
  }));
}

Grammar Grammar::regex(std::string_view pattern, const std::string& name) {
  return Grammar(built(name, [&](AutomatonBuilder& builder, auto from) {
    return regex_text(builder, from, pattern, RegexText::plain, false, name);
  }));
}

Grammar Grammar::choice(const std::vector<std::string>& texts) {
  if (texts.empty()) throw Error("a choice of no texts");
  return Grammar(built("choice", [&](AutomatonBuilder& builder, auto from) { return builder.choice(from, texts); }));
}

Grammar Grammar::tool_calls(ToolFormat format, const nlohmann::ordered_json& tools, std::string_view only,
                            bool parallel) {
  return Grammar(built("tools", [&](AutomatonBuilder& builder, auto from) {
    return tool_call_texts(builder, from, format, tools, only, parallel);
  }));
}

}  // namespace pergola
