#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pergola {

/// Width of the transform's blocks; EXL3 widths are multiples of it.
inline constexpr std::int64_t kHadamardBlock = 128;

/// 1 / sqrt(128), the factor that makes the transform its own inverse.
inline constexpr double kHadamardNorm = 0.08838834764831845;

/// In place x = H x / sqrt(128) for every block of 128 values, H the Sylvester matrix in natural order: H[i][j] =
/// (-1)^popcount(i & j). The length is a multiple of 128. The norm is applied once, after the butterflies.
void hadamard_blocks(std::span<float> values);
void hadamard_blocks(std::span<double> values);

}  // namespace pergola
