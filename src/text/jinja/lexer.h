#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pergola::jinja {

/// A piece of a template.
struct Token {
  enum class Kind : std::uint8_t {
    data,  ///< text between tags
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,   ///< `text` is the value
    integer,  ///< digits in any of Python's notations
    real,
    op,
    end,
  };
  Kind kind;
  std::string text;
  int line;
};

/// Cuts a template as Jinja2 does with trim_blocks and lstrip_blocks on, which is how Hugging Face's library reads chat
/// templates. Comments are left out, raw blocks become data. Throws Error naming file and line. Recursive descent later
/// needs no look-behind, so the result is the whole list, ended by Kind::end.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace pergola::jinja
