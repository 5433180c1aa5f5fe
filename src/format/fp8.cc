#include "format/fp8.h"

#include <cassert>
#include <cmath>

namespace pergola {

float decode_e4m3(std::byte code) {
  const int bits = std::to_integer<int>(code), exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 0x7F) == 0x7F) return NAN;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -size : size;
}

bool decode_fp8_row(std::span<const std::byte> codes, std::span<const float> scales, std::size_t block,
                    std::span<BFloat16> values) {
  assert(values.size() == codes.size() && block > 0 && scales.size() * block >= codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float value = decode_e4m3(codes[i]) * scales[i / block];
    if (!std::isfinite(value)) return false;
    values[i] = to_bfloat16(value);
  }
  return true;
}

}  // namespace pergola
