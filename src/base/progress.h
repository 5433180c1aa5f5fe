#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pergola {

/// Told by long work how far it is: `done` of `total` units of `stage`. The library calls it, cli/ and server/ decide
/// what to show. May be empty.
using Progress = std::function<void(const std::string& stage, std::uint64_t done, std::uint64_t total)>;

}  // namespace pergola
