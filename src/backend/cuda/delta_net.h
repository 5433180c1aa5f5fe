#pragma once

#include "backend/cuda/elementwise.h"

namespace pergola::cuda {

/// A gated-delta-net step as kernels see it (backend/operations.h, DeltaNet).
struct DeltaNetParams {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0, channels = 0, rows = 0, sequences = 0;
  float eps = 0;
  const float* conv_weight = nullptr;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* norm_weight = nullptr;
  MatrixView qkv, z, a, b, out;
  float* window = nullptr;
  std::int64_t window_stride = 0;
  float* state = nullptr;
  std::int64_t state_stride = 0;
  const std::int32_t* row_sequence = nullptr;
  const std::int32_t* row_start = nullptr;
  const std::int32_t* slots = nullptr;
  float* mixed = nullptr;  ///< work: [rows, channels], then [rows, value_heads] decays, the same of betas, then [rows,
                           ///< value_heads * value_dim] results

  static constexpr std::int64_t work_floats(std::int64_t rows, std::int64_t channels, std::int64_t value_heads,
                                            std::int64_t value_dim) {
    return rows * (channels + 2 * value_heads + value_heads * value_dim);
  }
};

/// key_dim and value_dim are multiples of 32 and at most 128 (key_dim) and 256 (value_dim).
void launch_delta_net(const LaunchContext& context, const DeltaNetParams& params);

}  // namespace pergola::cuda
