#pragma once

#include <string_view>

#include "text/jinja/operations.h"

namespace pergola::jinja {

/// Whether there is a test of this name.
bool is_test(std::string_view name);

/// value is name(arguments). Throws Error for what the test does not accept.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace pergola::jinja
