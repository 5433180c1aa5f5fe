#pragma once

#include <string>
#include <string_view>

#include "text/jinja/ast.h"

namespace pergola::jinja {

/// Deepest nesting of expressions and of statements in a template.
inline constexpr int kMaxSyntaxDepth = 200;

/// Parses a template with Jinja2's grammar. Throws Error naming file and line for what is no template, is nested too
/// deep, or uses a statement, filter or test that is not supported.
Block parse(std::string_view source, const std::string& file);

}  // namespace pergola::jinja
