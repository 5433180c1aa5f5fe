#pragma once

#include <string>

namespace pergola {

/// What `pergola --version` prints: version, commit, compiler, instruction sets and backends that were built.
std::string version_text();

}  // namespace pergola
