#pragma once

#include "backend/cuda/elementwise.h"

namespace pergola::cuda {

/// An attention step as kernels see it (backend/operations.h, Attention). head_dim is a multiple of 8, at most 256;
/// keys and values are binary16.
struct AttentionParams {
  int heads = 0, kv_heads = 0, head_dim = 0, gated = 0, rows = 0, sequences = 0, most_rows = 0;  ///< of a sequence
  float scale = 1;
  const float* q_norm = nullptr;  ///< may be null
  const float* k_norm = nullptr;
  float q_eps = 0, k_eps = 0;
  int rope_dims = 0, rope_interleaved = 0;
  const float* inv_freq = nullptr;
  float rope_magnitude = 1;
  MatrixView q, k, v, out;
  __half* keys = nullptr;
  __half* values = nullptr;
  std::int64_t cache_stride = 0;
  int page_size = 0;
  const std::int32_t* page_table = nullptr;
  std::int64_t page_table_stride = 0;
  const std::int32_t* positions = nullptr;
  const std::int32_t* row_sequence = nullptr;
  const std::int32_t* row_start = nullptr;
  float* work = nullptr;  ///< attention_work_floats()
  int splits = 1;         ///< set by launch_attention
};

/// Work space for parts of rows whose tokens are split over several blocks.
std::int64_t attention_work_floats(int multiprocessors, int heads, int kv_heads, int head_dim);

/// Attention of sequences with many rows each, on tensor cores, after q and k were prepared and appended.
bool flash_attention_fits(const LaunchContext& context, const AttentionParams& params);
void launch_flash_attention(const LaunchContext& context, const AttentionParams& params);

/// Norms and rotates q and k, appends k and v to the cache, attends, applies the output gate.
void launch_attention(const LaunchContext& context, AttentionParams params);

}  // namespace pergola::cuda
