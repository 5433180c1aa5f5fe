#pragma once

#include <string>
#include <string_view>

namespace pergola {

/// For a code point that Unicode 15, 15.1 or 16 added: an older one of the same general category (and kind, for Han and
/// emoji) and of the same length in UTF-8. Any other code point stands for itself. The tables of the libraries that we
/// use end at Unicode 14 or 15; through this they classify newer text as Hugging Face's library does.
char32_t older_equivalent(char32_t c);

/// Whether `text` (valid UTF-8) has code points with an older equivalent.
bool has_additions(std::string_view text);

/// `text` with every code point replaced by its older equivalent; offsets stay the same.
std::string without_additions(std::string_view text);

}  // namespace pergola
