#pragma once

#include <cstddef>
#include <span>

#include "base/half.h"

namespace pergola {

inline constexpr std::int64_t kMxfp4Block = 32;  ///< values that share a scale

/// Decodes MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 values in 16 bytes, the even value in the low nibble; a
/// nibble is a sign and E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6), times 2^(scale - 127). Every such value is exact in
/// bfloat16. `blocks` has 16 bytes a scale, `values` room for 32. Returns false at a scale above 252, which is NaN
/// (255) or takes the largest value beyond bfloat16; what follows is then not written.
bool decode_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<BFloat16> values);

}  // namespace pergola
