#pragma once

#include <cstdint>

namespace pergola {

/// How exact a linear's arithmetic is. docs/numerics.md has the error of each.
enum class Precision : std::uint8_t {
  standard,  ///< the default of the backend
  exact,     ///< full weights, activations at 12 bits or better on every path, keys and values in f32
  int8,      ///< int8 activations where a kernel gains from them
};

}  // namespace pergola
