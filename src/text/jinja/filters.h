#pragma once

#include <string_view>

#include "text/jinja/operations.h"

namespace pergola::jinja {

/// Whether there is a filter of this name.
bool is_filter(std::string_view name);

/// value | name(arguments). Throws Error for what the filter does not accept.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget);

}  // namespace pergola::jinja
