#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "text/chat/chat_format.h"
#include "text/grammar/automaton.h"

namespace pergola {

/// Calls of tools in a family's format; see Grammar::tool_calls.
AutomatonBuilder::NodeId tool_call_texts(AutomatonBuilder& builder, AutomatonBuilder::NodeId from, ToolFormat format,
                                         const nlohmann::ordered_json& tools, std::string_view only, bool parallel);

}  // namespace pergola
