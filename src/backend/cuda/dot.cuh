// Dot products of one dense binary16 row with rows of activations, by a warp, with every load of a stretch under way
// before the first is used.
#pragma once

#include "backend/cuda/input_transform.cuh"

namespace pergola::cuda {

/// 2048 weights of a row, eight a lane and step: loaded before the inputs are known to be there.
struct DenseStretch {
  static constexpr int kValues = 2048;
  uint4 part[8];

  __device__ __forceinline__ void load(const __half* row, int from, int k) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int at = from + c * 256 + lane * 8;
      part[c] = at < k ? __ldcs(reinterpret_cast<const uint4*>(row + at)) : make_uint4(0, 0, 0, 0);
    }
  }
};

/// Whether dot_stretch can read rows of x: 16-byte loads.
__device__ __forceinline__ bool rows_are_aligned(const void* x, std::int64_t stride) {
  return (reinterpret_cast<std::uintptr_t>(x) & 15) == 0 && (stride & 7) == 0;
}

/// sum += weights [from, from + 2048) . x[from ..) of one row that starts at element `start`; k is a multiple of 8.
__device__ __forceinline__ void dot_stretch(const DenseStretch& weights, const void* x, bool f32, std::int64_t start,
                                            int from, int k, bool is_aligned, float& sum) {
  const int lane = threadIdx.x & 31;
  if (!is_aligned) {
    for (int c = 0; c < 8; ++c) {
      const int at = from + c * 256 + lane * 8;
      if (at >= k) break;
      float w[8], v[8];
      widen(weights.part[c], w);
      load_ragged_inline(x, f32, start, at, k, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += w[i] * v[i];
    }
    return;
  }
#pragma unroll
  for (int batch = 0; batch < 8; batch += 4) {
    if (from + batch * 256 >= k) break;
    uint4 raw[4][2];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int at = from + (batch + c) * 256 + lane * 8;
      raw[c][0] = raw[c][1] = make_uint4(0, 0, 0, 0);
      if (at >= k) continue;
      if (f32) {
        const uint4* source = reinterpret_cast<const uint4*>(static_cast<const float*>(x) + start + at);
        raw[c][0] = source[0];
        raw[c][1] = source[1];
      } else {
        raw[c][0] = *reinterpret_cast<const uint4*>(static_cast<const __half*>(x) + start + at);
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float w[8], v[8];
      widen(weights.part[batch + c], w);
      if (f32) {
        const std::uint32_t words[8] = {raw[c][0].x, raw[c][0].y, raw[c][0].z, raw[c][0].w,
                                        raw[c][1].x, raw[c][1].y, raw[c][1].z, raw[c][1].w};
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = __uint_as_float(words[i]);
      } else {
        widen(raw[c][0], v);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += w[i] * v[i];
    }
  }
}

__device__ __forceinline__ float sum_of_warp(float v) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
  return v;
}

}  // namespace pergola::cuda
