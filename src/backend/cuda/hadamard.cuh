// The 128-point Hadamard transform inside a warp, and what follows it on the output side.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

inline constexpr float kHadamardScale = 0.088388347648318447f;  ///< 1 / sqrt(128)

/// Unnormalised transform of 128 values, four consecutive ones a lane.
__device__ __forceinline__ void hadamard128(float (&v)[4], int lane) {
  const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
  v[0] = a + c;
  v[1] = b + d;
  v[2] = a - c;
  v[3] = b - d;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(~0u, v[i], step);
      v[i] = (lane & step) != 0 ? other - v[i] : v[i] + other;
    }
  }
}

/// Scales one row's 128 transformed outputs by svh, adds the bias and writes the logical columns among them.
__device__ __forceinline__ void write_row(const TrellisTask& task, int row, int group, int lane, const float (&z)[4]) {
  const int column = group * 128 + lane * 4;
  float y[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = z[i] * kHadamardScale * __half2float(task.svh[column + i]);
    if (task.bias != nullptr && column + i < task.columns) y[i] += __half2float(task.bias[column + i]);
  }
  if (column >= task.columns) return;
  const std::int64_t at = row * task.out_stride + column;
  const bool whole = column + 4 <= task.columns && (task.out_stride & 3) == 0;
  if (task.out_f32 != 0) {
    float* out = static_cast<float*>(task.out) + at;
    if (whole && (reinterpret_cast<std::uintptr_t>(out) & 15) == 0) {
      *reinterpret_cast<float4*>(out) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
      for (int i = 0; i < 4 && column + i < task.columns; ++i) out[i] = y[i];
    }
  } else {
    __half* out = static_cast<__half*>(task.out) + at;
    if (whole && (reinterpret_cast<std::uintptr_t>(out) & 7) == 0) {
      const __half2 pair[2] = {__floats2half2_rn(y[0], y[1]), __floats2half2_rn(y[2], y[3])};
      *reinterpret_cast<uint2*>(out) = *reinterpret_cast<const uint2*>(pair);
    } else {
      for (int i = 0; i < 4 && column + i < task.columns; ++i) out[i] = __float2half_rn(y[i]);
    }
  }
}

}  // namespace pergola::cuda
