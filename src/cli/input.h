#pragma once

#include <string>

namespace pergola {

/// The whole content of a file. Throws Error naming it when it cannot be read.
std::string read_text_file(const std::string& path);

/// Standard input to its end. Throws Error when it cannot be read.
std::string read_standard_input();

}  // namespace pergola
