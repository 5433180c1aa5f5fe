#pragma once

#include "backend/cuda/elementwise.h"
#include "backend/cuda/packed_layout.h"

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
  float* mixed = nullptr;  ///< work space of work_floats(): [rows, channels], then [rows, value_heads] decays, the same
                           ///< of betas, then [rows, value_heads * value_dim] results; in chunks see delta_chunks.cu

  static constexpr std::int64_t work_floats(std::int64_t rows, std::int64_t channels, std::int64_t value_heads,
                                            std::int64_t value_dim);
};

// Prompts are taken in chunks of 64 tokens (delta_chunks.cu).
inline constexpr int kDeltaChunk = 64;
inline constexpr int kDeltaChunkDim = 128;        ///< of keys and values
inline constexpr int kDeltaRowsPerSequence = 16;  ///< on average, fewer go token by token

PERGOLA_BOTH_SIDES constexpr std::int64_t aligned_floats(std::int64_t floats) {
  return (floats + 63) / 64 * 64;
}

/// Whether a step of so many rows is worth doing in chunks; also bounds their work space.
constexpr bool delta_chunks_pay(std::int64_t rows, std::int64_t sequences, int key_dim, int value_dim, int kernel) {
  return key_dim == kDeltaChunkDim && value_dim == kDeltaChunkDim && kernel == 4 &&
         sequences * kDeltaRowsPerSequence <= rows;
}

constexpr std::int64_t DeltaNetParams::work_floats(std::int64_t rows, std::int64_t channels, std::int64_t value_heads,
                                                   std::int64_t value_dim) {
  const std::int64_t values = value_heads * value_dim;
  const std::int64_t one_by_one = rows * (channels + 2 * value_heads + values);
  if (value_dim != kDeltaChunkDim) return one_by_one;
  const std::int64_t slots = rows / kDeltaChunk + rows / kDeltaRowsPerSequence;
  const std::int64_t chunks = aligned_floats(rows * (values + 2 * value_heads)) + rows * (channels / 2 + values) +
                              slots * value_heads * kDeltaChunk * kDeltaChunk / 2;
  return one_by_one > chunks ? one_by_one : chunks;
}

/// key_dim and value_dim are multiples of 32 and at most 128 (key_dim) and 256 (value_dim).
void launch_delta_net(const LaunchContext& context, const DeltaNetParams& params);

/// Whether launch_delta_chunks can do the step.
bool delta_chunks_fit(const LaunchContext& context, const DeltaNetParams& params);

/// Convolution, norms and the delta rule; results [rows, value_heads, value_dim] from params.mixed on.
void launch_delta_chunks(const LaunchContext& context, const DeltaNetParams& params);

}  // namespace pergola::cuda
