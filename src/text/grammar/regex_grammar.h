#pragma once

#include <string>
#include <string_view>

#include "text/grammar/automaton.h"

namespace pergola {

/// How the text of a regular expression is written down.
enum class RegexText : std::uint8_t {
  plain,  ///< as it is
  json,   ///< as the inside of a JSON string: quotes, backslashes and control characters escaped
};

/// Appends the texts that match `pattern`: the whole of them, or (`search`, as in JSON Schema) any that hold a match.
/// Supported is what describes a regular language in ECMAScript's syntax: literals, classes, escapes \d \w \s and their
/// opposites, groups, alternatives, repetition, ^ at the start and $ at the end. Throws Error naming `name` for the
/// rest.
AutomatonBuilder::NodeId regex_text(AutomatonBuilder& builder, AutomatonBuilder::NodeId from, std::string_view pattern,
                                    RegexText style, bool search, const std::string& name);

/// One character of `set` inside a JSON string.
void json_character(AutomatonBuilder& builder, AutomatonBuilder::NodeId from, const CodePoints& set,
                    AutomatonBuilder::NodeId to);

}  // namespace pergola
