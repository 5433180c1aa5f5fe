#pragma once

#include <cstdint>

#include "backend/cuda/packed_gemm.h"
#include "base/dtype.h"

namespace pergola::cuda {

/// A matrix in device memory as kernels see it.
struct MatrixView {
  void* data = nullptr;
  std::int64_t stride = 0;  ///< elements
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::int32_t f32 = 0;  ///< 1: fp32, 0: binary16
};

/// out[r] = scale * table[ids[r]] in fp32; table rows of f16, bf16 or f32.
void launch_embed(const LaunchContext& context, const void* table, DType type, const std::int32_t* ids, float scale,
                  const MatrixView& out);

/// x = cap * tanh(x / cap).
void launch_soft_cap(const LaunchContext& context, const MatrixView& x, float cap);

/// residual += delta (where given), then out = residual * rsqrt(mean(residual^2) + eps) * weight.
void launch_rms_norm(const LaunchContext& context, const MatrixView& residual, const MatrixView* delta,
                     const float* weight, float eps, const MatrixView& out);

/// out = activation(gate) * up; 0 SiLU, 1 GELU (tanh).
void launch_gated_activation(const LaunchContext& context, int activation, const MatrixView& gate, const MatrixView& up,
                             const MatrixView& out);

/// out[i] = x[indices[i]], rows of `row_bytes` bytes.
void launch_gather_rows(const LaunchContext& context, const void* x, std::int64_t x_stride_bytes,
                        const std::int32_t* indices, void* out, std::int64_t out_stride_bytes, std::int64_t row_bytes,
                        std::int64_t rows);

/// y = x W^T + bias with x binary16 [rows, k], W binary16 [n, k], fp32 sums. k and the strides are multiples of 8.
void launch_dense(const LaunchContext& context, const MatrixView& x, const __half* weight, const __half* bias,
                  const MatrixView& out);

}  // namespace pergola::cuda
