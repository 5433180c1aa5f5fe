// The small operations between the big ones: one pass over a row each.
#include "backend/cuda/elementwise.h"

#include <cuda_bf16.h>

#include "backend/cuda/input_transform.cuh"
#include "backend/cuda/launch.h"

namespace pergola::cuda {

namespace {

__device__ __forceinline__ float load(const MatrixView& m, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * m.stride + column;
  return m.f32 != 0 ? static_cast<const float*>(m.data)[at] : __half2float(static_cast<const __half*>(m.data)[at]);
}

__device__ __forceinline__ void store(const MatrixView& m, std::int64_t row, std::int64_t column, float value) {
  const std::int64_t at = row * m.stride + column;
  if (m.f32 != 0) {
    static_cast<float*>(m.data)[at] = value;
  } else {
    static_cast<__half*>(m.data)[at] = __float2half_rn(value);
  }
}

struct EmbedParams {
  const void* table;
  const std::int32_t* ids;
  MatrixView out;
  int type;  ///< 0 f16, 1 bf16, 2 f32
  float scale;
};

__global__ void __launch_bounds__(256) embed(const __grid_constant__ EmbedParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.x, from = static_cast<std::int64_t>(params.ids[row]) * params.out.columns;
  for (int c = threadIdx.x; c < params.out.columns; c += blockDim.x) {
    float value;
    if (params.type == 0) {
      value = __half2float(static_cast<const __half*>(params.table)[from + c]);
    } else if (params.type == 1) {
      value = __bfloat162float(static_cast<const __nv_bfloat16*>(params.table)[from + c]);
    } else {
      value = static_cast<const float*>(params.table)[from + c];
    }
    store(params.out, row, c, params.scale * value);
  }
}

struct SoftCapParams {
  MatrixView x;
  float cap;
};

__global__ void __launch_bounds__(256) soft_cap(const __grid_constant__ SoftCapParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c < params.x.columns) store(params.x, row, c, params.cap * tanhf(load(params.x, row, c) / params.cap));
}

struct NormParams {
  MatrixView residual, delta, out;
  const float* weight;
  float eps;
  int has_delta;
};

__global__ void __launch_bounds__(512) rms_norm(const __grid_constant__ NormParams params) {
  __shared__ float parts[16];
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.x;
  const int width = params.residual.columns;
  float* residual = static_cast<float*>(params.residual.data) + row * params.residual.stride;
  float sum = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    float value = residual[c];
    if (params.has_delta != 0) {
      value += load(params.delta, row, c);
      residual[c] = value;
    }
    sum += value * value;
  }
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x >> 5); ++i) sum += parts[i];
  const float scale = rsqrtf(sum / static_cast<float>(width) + params.eps);
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    store(params.out, row, c, residual[c] * scale * params.weight[c]);
}

/// The same for rows of whole float4s that a block keeps in registers.
template <int kPerThread>
__global__ void __launch_bounds__(1024) rms_norm_wide(const __grid_constant__ NormParams params) {
  __shared__ float parts[32];
  allow_next_kernel();
  const int fours = params.residual.columns / 4, warps = static_cast<int>(blockDim.x >> 5), lane = threadIdx.x & 31;
  const std::int64_t row = blockIdx.x;
  float4 weight[kPerThread], value[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int at = static_cast<int>(threadIdx.x + i * blockDim.x);
    if (at < fours) weight[i] = __ldg(reinterpret_cast<const float4*>(params.weight) + at);
  }
  wait_for_previous_kernel();
  float4* residual =
      reinterpret_cast<float4*>(static_cast<float*>(params.residual.data) + row * params.residual.stride);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int at = static_cast<int>(threadIdx.x + i * blockDim.x);
    value[i] = make_float4(0, 0, 0, 0);
    if (at >= fours) continue;
    value[i] = residual[at];
    if (params.has_delta != 0) {
      float4 delta;
      if (params.delta.f32 != 0) {
        delta = reinterpret_cast<const float4*>(static_cast<const float*>(params.delta.data) +
                                                row * params.delta.stride)[at];
      } else {
        const uint2 raw = reinterpret_cast<const uint2*>(static_cast<const __half*>(params.delta.data) +
                                                         row * params.delta.stride)[at];
        const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&raw.x)),
                     b = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
        delta = make_float4(a.x, a.y, b.x, b.y);
      }
      value[i].x += delta.x;
      value[i].y += delta.y;
      value[i].z += delta.z;
      value[i].w += delta.w;
      residual[at] = value[i];
    }
    sum += value[i].x * value[i].x + value[i].y * value[i].y + value[i].z * value[i].z + value[i].w * value[i].w;
  }
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  sum = lane < warps ? parts[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  const float scale = rsqrtf(sum / static_cast<float>(params.residual.columns) + params.eps);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int at = static_cast<int>(threadIdx.x + i * blockDim.x);
    if (at >= fours) continue;
    const float4 y = make_float4(value[i].x * scale * weight[i].x, value[i].y * scale * weight[i].y,
                                 value[i].z * scale * weight[i].z, value[i].w * scale * weight[i].w);
    if (params.out.f32 != 0) {
      reinterpret_cast<float4*>(static_cast<float*>(params.out.data) + row * params.out.stride)[at] = y;
    } else {
      const __half2 pair[2] = {__floats2half2_rn(y.x, y.y), __floats2half2_rn(y.z, y.w)};
      reinterpret_cast<uint2*>(static_cast<__half*>(params.out.data) + row * params.out.stride)[at] =
          *reinterpret_cast<const uint2*>(pair);
    }
  }
}

struct GateParams {
  MatrixView gate, up, out;
  int activation;
};

__global__ void __launch_bounds__(256) gated_activation(const __grid_constant__ GateParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= params.out.columns) return;
  store(params.out, row, c, activate(params.activation, load(params.gate, row, c)) * load(params.up, row, c));
}

/// The same for binary16 rows of whole 16-byte pieces.
__global__ void __launch_bounds__(256) gated_activation_wide(const __grid_constant__ GateParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (c >= params.out.columns) return;
  const auto at = [&](const MatrixView& m) {
    return reinterpret_cast<uint4*>(static_cast<__half*>(m.data) + row * m.stride + c);
  };
  float gate[8], up[8];
  widen(*at(params.gate), gate);
  widen(*at(params.up), up);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate[i] = activate(params.activation, gate[i]) * up[i];
  *at(params.out) = make_uint4(pack_half(gate[0], gate[1]), pack_half(gate[2], gate[3]), pack_half(gate[4], gate[5]),
                               pack_half(gate[6], gate[7]));
}

struct GatherParams {
  const std::byte* x;
  const std::int32_t* indices;
  std::byte* out;
  std::int64_t x_stride, out_stride, row_bytes;
};

__global__ void __launch_bounds__(256) gather_rows(const __grid_constant__ GatherParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const std::byte* from = params.x + params.indices[blockIdx.x] * params.x_stride;
  std::byte* to = params.out + blockIdx.x * params.out_stride;
  for (std::int64_t i = threadIdx.x * 2; i < params.row_bytes; i += blockDim.x * 2)
    *reinterpret_cast<std::uint16_t*>(to + i) = *reinterpret_cast<const std::uint16_t*>(from + i);
}

struct DenseParams {
  MatrixView x, out;
  const __half* weight;
  const __half* bias;
};

/// One warp an output column, up to eight rows at once.
__global__ void __launch_bounds__(256) dense_few(const __grid_constant__ DenseParams params) {
  allow_next_kernel();
  const int column = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5)), lane = threadIdx.x & 31,
            first = blockIdx.y * 8;
  const int rows = min(8, params.x.rows - first);
  wait_for_previous_kernel();
  if (column >= params.out.columns) return;
  const __half* weight = params.weight + static_cast<std::int64_t>(column) * params.x.columns;
  float sum[8] = {};
  for (int k = lane * 8; k < params.x.columns; k += 256) {
    float w[8];
    load_values(weight, false, 0, k, params.x.columns, w);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      if (r < rows) {
        float v[8];
        load_values(params.x.data, params.x.f32 != 0, (first + r) * params.x.stride, k, params.x.columns, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r] += w[i] * v[i];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) sum[r] += __shfl_xor_sync(~0u, sum[r], step);
    if (lane == 0 && r < rows)
      store(params.out, first + r, column,
            sum[r] + (params.bias != nullptr ? __half2float(params.bias[column]) : 0.0f));
  }
}

/// 64 x 64 outputs a block of four warps (2 x 2 of 32 x 32), k in steps of 32.
__global__ void __launch_bounds__(128) dense_many(const __grid_constant__ DenseParams params) {
  constexpr int kStride = 40;
  __shared__ __align__(16) __half a[64 * kStride];
  __shared__ __align__(16) __half b[64 * kStride];
  allow_next_kernel();
  wait_for_previous_kernel();
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, g = lane >> 2, q = lane & 3;
  const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64, rows = params.x.rows, columns = params.out.columns,
            width = params.x.columns;
  const int warp_row = (warp >> 1) * 32, warp_column = (warp & 1) * 32;
  const __half* x = static_cast<const __half*>(params.x.data);
  float sum[2][4][4] = {};
  for (int k = 0; k < width; k += 32) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = thread + i * 128, r = at >> 2, c = (at & 3) * 8;
      uint4 va = make_uint4(0, 0, 0, 0), vb = va;
      if (k + c < width) {
        if (row0 + r < rows) va = *reinterpret_cast<const uint4*>(x + (row0 + r) * params.x.stride + k + c);
        if (column0 + r < columns)
          vb = *reinterpret_cast<const uint4*>(params.weight + static_cast<std::int64_t>(column0 + r) * width + k + c);
      }
      *reinterpret_cast<uint4*>(a + r * kStride + c) = va;
      *reinterpret_cast<uint4*>(b + r * kStride + c) = vb;
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < 32; step += 16) {
      std::uint32_t fa[2][4], fb[4][2];
      const auto word = [&](const __half* from, int r, int c) {
        return *reinterpret_cast<const std::uint32_t*>(from + r * kStride + c);
      };
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = warp_row + i * 16 + g;
        fa[i][0] = word(a, r, step + 2 * q);
        fa[i][1] = word(a, r + 8, step + 2 * q);
        fa[i][2] = word(a, r, step + 2 * q + 8);
        fa[i][3] = word(a, r + 8, step + 2 * q + 8);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        fb[j][0] = word(b, warp_column + j * 8 + g, step + 2 * q);
        fb[j][1] = word(b, warp_column + j * 8 + g, step + 2 * q + 8);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) mma_f16(sum[i][j], fa[i][0], fa[i][1], fa[i][2], fa[i][3], fb[j][0], fb[j][1]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row0 + warp_row + i * 16 + g + 8 * (e >> 1),
                  column = column0 + warp_column + j * 8 + 2 * q + (e & 1);
        if (row < rows && column < columns)
          store(params.out, row, column,
                sum[i][j][e] + (params.bias != nullptr ? __half2float(params.bias[column]) : 0.0f));
      }
}

unsigned ceil_div(std::int64_t a, std::int64_t b) {
  return static_cast<unsigned>((a + b - 1) / b);
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

void launch_embed(const LaunchContext& context, const void* table, DType type, const std::int32_t* ids, float scale,
                  const MatrixView& out) {
  launch(context, embed, dim3(static_cast<unsigned>(out.rows)), 256, 0,
         EmbedParams{table, ids, out,
                     type == DType::f16    ? 0
                     : type == DType::bf16 ? 1
                                           : 2,
                     scale});
}

void launch_soft_cap(const LaunchContext& context, const MatrixView& x, float cap) {
  launch(context, soft_cap, dim3(ceil_div(x.columns, 256), static_cast<unsigned>(x.rows)), 256, 0,
         SoftCapParams{x, cap});
}

void launch_rms_norm(const LaunchContext& context, const MatrixView& residual, const MatrixView* delta,
                     const float* weight, float eps, const MatrixView& out) {
  const NormParams params{
      residual, delta != nullptr ? *delta : MatrixView{}, out, weight, eps, delta != nullptr ? 1 : 0};
  const dim3 grid(static_cast<unsigned>(residual.rows));
  const bool whole = (residual.columns | residual.stride | out.stride | params.delta.stride) % 4 == 0 &&
                     residual.columns <= 4 * 4 * 1024 && is_aligned(residual.data) && is_aligned(out.data) &&
                     is_aligned(params.delta.data) && is_aligned(weight);
  if (!whole) return launch(context, rms_norm, grid, residual.columns >= 4096 ? 512 : 256, 0, params);
  const int fours = residual.columns / 4,
            per_thread = fours <= 512    ? 1
                         : fours <= 2048 ? 2
                                         : 4,
            threads = ((fours + per_thread - 1) / per_thread + 31) / 32 * 32;
  if (per_thread == 1) return launch(context, rms_norm_wide<1>, grid, threads, 0, params);
  if (per_thread == 2) return launch(context, rms_norm_wide<2>, grid, threads, 0, params);
  launch(context, rms_norm_wide<4>, grid, threads, 0, params);
}

void launch_gated_activation(const LaunchContext& context, int activation, const MatrixView& gate, const MatrixView& up,
                             const MatrixView& out) {
  const auto whole = [](const MatrixView& m) {
    return m.f32 == 0 && m.columns % 8 == 0 && m.stride % 8 == 0 && is_aligned(m.data);
  };
  if (whole(gate) && whole(up) && whole(out))
    return launch(context, gated_activation_wide, dim3(ceil_div(out.columns, 8 * 256), static_cast<unsigned>(out.rows)),
                  256, 0, GateParams{gate, up, out, activation});
  launch(context, gated_activation, dim3(ceil_div(out.columns, 256), static_cast<unsigned>(out.rows)), 256, 0,
         GateParams{gate, up, out, activation});
}

void launch_gather_rows(const LaunchContext& context, const void* x, std::int64_t x_stride_bytes,
                        const std::int32_t* indices, void* out, std::int64_t out_stride_bytes, std::int64_t row_bytes,
                        std::int64_t rows) {
  launch(context, gather_rows, dim3(static_cast<unsigned>(rows)), 256, 0,
         GatherParams{static_cast<const std::byte*>(x), indices, static_cast<std::byte*>(out), x_stride_bytes,
                      out_stride_bytes, row_bytes});
}

void launch_dense(const LaunchContext& context, const MatrixView& x, const __half* weight, const __half* bias,
                  const MatrixView& out) {
  const DenseParams params{x, out, weight, bias};
  if (x.rows <= 16 || x.f32 != 0)  // the other kernel's operands are binary16
    return launch(context, dense_few, dim3(ceil_div(out.columns, 8), ceil_div(x.rows, 8)), 256, 0, params);
  launch(context, dense_many, dim3(ceil_div(out.columns, 64), ceil_div(x.rows, 64)), 128, 0, params);
}

}  // namespace pergola::cuda
