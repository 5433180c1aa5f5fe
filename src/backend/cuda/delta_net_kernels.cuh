// What the kernels of the gated delta net share.
#pragma once

#include "backend/cuda/delta_net.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

__device__ __forceinline__ float element(const MatrixView& m, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * m.stride + column;
  return m.f32 != 0 ? static_cast<const float*>(m.data)[at] : __half2float(static_cast<const __half*>(m.data)[at]);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
  return v;
}

/// The convolution's input `back` tokens before row t of the sequence.
__device__ __forceinline__ float conv_input(const DeltaNetParams& p, int first, int t, int back, const float* window,
                                            int channel) {
  if (back <= t) return element(p.qkv, first + t - back, channel);
  return window[static_cast<std::int64_t>(p.kernel - 1 + t - back) * p.channels + channel];
}

/// A sequence's window moves on over its `rows` rows, the work dealt to the thread blocks of the grid's x and y: its
/// last inputs may reach back into itself, oldest first.
__device__ __forceinline__ void move_window(const DeltaNetParams& p, int first, int rows, std::int64_t slot) {
  float* window = p.window + slot * p.window_stride;
  const int blocks = static_cast<int>(gridDim.x * gridDim.y), per_block = (p.channels + blocks - 1) / blocks,
            from = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x) * per_block;
  for (int channel = from + static_cast<int>(threadIdx.x); channel < min(from + per_block, p.channels);
       channel += static_cast<int>(blockDim.x)) {
    for (int i = 0; i < p.kernel - 1; ++i)
      window[static_cast<std::int64_t>(i) * p.channels + channel] =
          conv_input(p, first, rows - 1, p.kernel - 2 - i, window, channel);
  }
}

}  // namespace pergola::cuda
