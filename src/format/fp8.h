#pragma once

#include <cstddef>
#include <span>

#include "base/half.h"

namespace pergola {

/// The value of an fp8 E4M3 ("fn": no infinities, 0x7F and 0xFF are NaN; largest 448).
float decode_e4m3(std::byte code);

/// Decodes a row of E4M3 values times a scale for each `block` of them (the last block may be shorter), rounded to
/// bfloat16. Returns false at a NaN or a product that is not finite; what follows is then not written.
bool decode_fp8_row(std::span<const std::byte> codes, std::span<const float> scales, std::size_t block,
                    std::span<BFloat16> values);

}  // namespace pergola
