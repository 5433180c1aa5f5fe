#pragma once

#include <string>

namespace pergola {

/// Unicode White_Space.
bool is_white_space(char32_t c);

/// General category N (decimal digits, letter-like numbers, other numbers).
bool is_numeric(char32_t c);

/// ASCII punctuation and symbols, or general category P.
bool is_punctuation(char32_t c);

/// A word character as UTS #18 defines \w: Alphabetic, mark, decimal digit, connector punctuation, join control.
bool is_word(char32_t c);

/// General category M.
bool is_mark(char32_t c);

/// Appends the lower case of `c`, one character at a time (no final sigma).
void append_lower(std::string& out, char32_t c);

}  // namespace pergola
