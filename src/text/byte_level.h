#pragma once

#include <string>
#include <string_view>

namespace pergola {

/// GPT-2's alphabet: each byte as one printable character. Bytes 33-126, 161-172 and 174-255 stand for the code point
/// of the same number, the other 68 in increasing order for 256, 257, ....
std::string_view byte_level_character(unsigned char byte);

/// The byte that a character of the alphabet stands for, or -1.
int byte_level_byte(char32_t code_point);

/// Appends `bytes` in the alphabet.
void append_byte_level(std::string& out, std::string_view bytes);

}  // namespace pergola
