#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "trellis/linear_view.h"

namespace pergola {

/// Random weights in the forms that checkpoints have, and the memory behind them. Views stay valid while the object
/// lives.
class RandomWeights {
 public:
  explicit RandomWeights(std::uint64_t seed) : generator_(seed) {}

  /// Normal values times `scale`.
  std::vector<float> floats(std::int64_t count, float scale = 1.0f);

  /// A matrix of unit-variance rows over sqrt(columns), stored as `dtype` (f32, f16 or bf16).
  DenseView dense(DType dtype, std::int64_t rows, std::int64_t columns);
  LinearView dense_linear(std::int64_t in, std::int64_t out, DType dtype = DType::bf16);

  /// A random trellis whose outputs are of the size of its inputs; widths are padded to multiples of 128 where they are
  /// not.
  LinearView trellis_linear(std::int64_t in, std::int64_t out, int bits, Codebook codebook, bool bias = false);

 private:
  std::span<const std::byte> keep(std::vector<std::byte> bytes);
  std::span<const std::byte> signs(std::int64_t count, float magnitude);

  std::mt19937_64 generator_;
  std::deque<std::vector<std::byte>> storage_;
};

}  // namespace pergola
