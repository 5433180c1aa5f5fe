#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace pergola {

/// Rewrites a regular expression from Oniguruma's syntax, which tokenizer.json is written in, to PCRE2's, where the two
/// mean different things by the same text. Throws Error naming `where` for a construct that PCRE2 cannot express.
std::string translate_regex(std::string_view pattern, const Where& where);

}  // namespace pergola
