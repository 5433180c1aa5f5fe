// Paged causal attention: one kernel that norms, rotates and appends, one that attends (a query row and the heads of
// one key-value head a block, its tokens possibly split over blocks), one that joins the splits.
#include <algorithm>
#include <cfloat>

#include "backend/cuda/attention.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kWarps = 4;

__device__ __forceinline__ float element(const MatrixView& m, std::int64_t at) {
  return m.f32 != 0 ? static_cast<const float*>(m.data)[at] : __half2float(static_cast<const __half*>(m.data)[at]);
}

__device__ __forceinline__ std::int64_t cache_row(const AttentionParams& p, int sequence, int position) {
  return static_cast<std::int64_t>(p.page_table[sequence * p.page_table_stride + position / p.page_size]) *
             p.page_size +
         position % p.page_size;
}

/// A warp a head of q (written back in place), of k and of v (written to the cache).
__global__ void __launch_bounds__(32 * kWarps) append(const __grid_constant__ AttentionParams p) {
  __shared__ float head_values[kWarps][kMaxHeadDim];
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = blockIdx.y, index = static_cast<int>(blockIdx.x * kWarps + (threadIdx.x >> 5)),
            lane = threadIdx.x & 31;
  if (index >= p.heads + 2 * p.kv_heads) return;
  float* values = head_values[threadIdx.x >> 5];
  const bool is_q = index < p.heads, is_k = !is_q && index < p.heads + p.kv_heads;
  const int head = is_q ? index : is_k ? index - p.heads : index - p.heads - p.kv_heads, position = p.positions[row];
  const MatrixView& from = is_q ? p.q : is_k ? p.k : p.v;
  const std::int64_t at =
      row * from.stride + static_cast<std::int64_t>(head) * p.head_dim * (is_q && p.gated != 0 ? 2 : 1);
  const float* norm = is_q ? p.q_norm : is_k ? p.k_norm : nullptr;
  float square = 0;
  for (int i = lane; i < p.head_dim; i += 32) {
    values[i] = element(from, at + i);
    square += values[i] * values[i];
  }
  if (norm != nullptr) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) square += __shfl_xor_sync(~0u, square, step);
    const float scale = rsqrtf(square / static_cast<float>(p.head_dim) + (is_q ? p.q_eps : p.k_eps));
    for (int i = lane; i < p.head_dim; i += 32) values[i] *= scale * norm[i];
  }
  __syncwarp();
  if (is_q || is_k) {
    const int pairs = p.rope_dims / 2;
    for (int j = lane; j < pairs; j += 32) {
      float sine, cosine;
      sincosf(static_cast<float>(position) * p.inv_freq[j], &sine, &cosine);
      float& a = values[p.rope_interleaved != 0 ? 2 * j : j];
      float& b = values[p.rope_interleaved != 0 ? 2 * j + 1 : j + pairs];
      const float x = a, y = b;
      a = (x * cosine - y * sine) * p.rope_magnitude;
      b = (y * cosine + x * sine) * p.rope_magnitude;
    }
  }
  __syncwarp();
  if (is_q) {
    for (int i = lane; i < p.head_dim; i += 32) {
      if (from.f32 != 0) {
        static_cast<float*>(from.data)[at + i] = values[i];
      } else {
        static_cast<__half*>(from.data)[at + i] = __float2half_rn(values[i]);
      }
    }
  } else {
    __half* to = (is_k ? p.keys : p.values) + cache_row(p, p.row_sequence[row], position) * p.cache_stride +
                 static_cast<std::int64_t>(head) * p.head_dim;
    for (int i = lane; i < p.head_dim; i += 32) to[i] = __float2half_rn(values[i]);
  }
}

/// Tokens of a split, so that splits of one row are equal and full ones come first.
__device__ __forceinline__ int split_length(int tokens, int splits) {
  return (((tokens + splits - 1) / splits) + 15) / 16 * 16;
}

template <int kPerLane>
__device__ __forceinline__ void load_halves(const __half* from, float (&v)[kPerLane]) {
  std::uint32_t words[kPerLane / 2];
  if constexpr (kPerLane == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    words[0] = raw.x;
    words[1] = raw.y;
    words[2] = raw.z;
    words[3] = raw.w;
  } else {
    const uint2 raw = *reinterpret_cast<const uint2*>(from);
    words[0] = raw.x;
    words[1] = raw.y;
  }
#pragma unroll
  for (int i = 0; i < kPerLane / 2; ++i) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    v[2 * i] = two.x;
    v[2 * i + 1] = two.y;
  }
}

__device__ __forceinline__ void write_head(const AttentionParams& p, std::int64_t row, int head, int i, float value) {
  if (p.gated != 0)
    value /= 1.0f + __expf(-element(
                        p.q, row * p.q.stride + static_cast<std::int64_t>(head) * 2 * p.head_dim + p.head_dim + i));
  const std::int64_t at = row * p.out.stride + static_cast<std::int64_t>(head) * p.head_dim + i;
  if (p.out.f32 != 0) {
    static_cast<float*>(p.out.data)[at] = value;
  } else {
    static_cast<__half*>(p.out.data)[at] = __float2half_rn(value);
  }
}

/// Lane i of a warp holds values kPerLane * i .. of every head; the warps of a block take turns over the tokens.
template <int kPerLane, int kHeads>
__global__ void __launch_bounds__(32 * kWarps) attend(const __grid_constant__ AttentionParams p) {
  __shared__ float maxima[kWarps][kHeads], totals[kWarps][kHeads];
  extern __shared__ float parts[];  // [kWarps][kHeads][head_dim]
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = blockIdx.x, split = blockIdx.z, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int per_kv = p.heads / p.kv_heads, groups = (per_kv + kHeads - 1) / kHeads;
  const int kv_head = blockIdx.y / groups, first_head = kv_head * per_kv + blockIdx.y % groups * kHeads;
  const int heads = min(kHeads, (kv_head + 1) * per_kv - first_head);
  const int sequence = p.row_sequence[row], tokens = p.positions[row] + 1, length = split_length(tokens, p.splits);
  const int begin = split * length, end = min(tokens, begin + length);
  if (begin >= end) return;
  const bool active = lane * kPerLane < p.head_dim;

  float q[kHeads][kPerLane], sum[kHeads][kPerLane], most[kHeads], total[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    most[h] = -FLT_MAX;
    total[h] = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      sum[h][i] = q[h][i] = 0;
      if (h < heads && active)
        q[h][i] =
            p.scale * element(p.q, row * p.q.stride +
                                       static_cast<std::int64_t>(first_head + h) * p.head_dim * (p.gated != 0 ? 2 : 1) +
                                       lane * kPerLane + i);
    }
  }
  for (int t = begin + warp; t < end; t += kWarps) {
    const std::int64_t at =
        cache_row(p, sequence, t) * p.cache_stride + static_cast<std::int64_t>(kv_head) * p.head_dim + lane * kPerLane;
    float k[kPerLane] = {}, v[kPerLane] = {};
    if (active) {
      load_halves<kPerLane>(p.keys + at, k);
      load_halves<kPerLane>(p.values + at, v);
    }
    float score[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      score[h] = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) score[h] += q[h][i] * k[i];
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) score[h] += __shfl_xor_sync(~0u, score[h], step);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (score[h] > most[h]) {
        const float shrink = __expf(most[h] - score[h]);
        most[h] = score[h];
        total[h] *= shrink;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) sum[h][i] *= shrink;
      }
      const float weight = __expf(score[h] - most[h]);
      total[h] += weight;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) sum[h][i] += weight * v[i];
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (lane == 0) {
      maxima[warp][h] = most[h];
      totals[warp][h] = total[h];
    }
    if (active) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) parts[(warp * kHeads + h) * p.head_dim + lane * kPerLane + i] = sum[h][i];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < heads * p.head_dim; at += 32 * kWarps) {
    const int h = at / p.head_dim, i = at % p.head_dim;
    float largest = maxima[0][h], all = 0, value = 0;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, maxima[w][h]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = __expf(maxima[w][h] - largest);
      all += weight * totals[w][h];
      value += weight * parts[(w * kHeads + h) * p.head_dim + i];
    }
    if (p.splits == 1) {
      write_head(p, row, first_head + h, i, value / all);
    } else {
      float* part =
          p.work + ((static_cast<std::int64_t>(row) * p.heads + first_head + h) * p.splits + split) * (p.head_dim + 2);
      part[2 + i] = value;
      if (i == 0) {
        part[0] = largest;
        part[1] = all;
      }
    }
  }
}

__global__ void __launch_bounds__(256) join_splits(const __grid_constant__ AttentionParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = blockIdx.x, head = blockIdx.y, i = threadIdx.x;
  if (i >= p.head_dim) return;
  const int tokens = p.positions[row] + 1, length = split_length(tokens, p.splits),
            used = (tokens + length - 1) / length;
  const float* part = p.work + (static_cast<std::int64_t>(row) * p.heads + head) * p.splits * (p.head_dim + 2);
  float largest = -FLT_MAX, all = 0, value = 0;
  for (int s = 0; s < used; ++s) largest = fmaxf(largest, part[s * (p.head_dim + 2)]);
  for (int s = 0; s < used; ++s) {
    const float weight = __expf(part[s * (p.head_dim + 2)] - largest);
    all += weight * part[s * (p.head_dim + 2) + 1];
    value += weight * part[s * (p.head_dim + 2) + 2 + i];
  }
  write_head(p, row, head, i, value / all);
}

constexpr int kMaxSplits = 64;

template <int kPerLane, int kHeads>
void launch_attend(const LaunchContext& context, const AttentionParams& p) {
  const int per_kv = p.heads / p.kv_heads, groups = (per_kv + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>(p.kv_heads * groups),
                  static_cast<unsigned>(p.splits));
  launch(context, attend<kPerLane, kHeads>, grid, 32 * kWarps,
         static_cast<std::size_t>(kWarps) * kHeads * p.head_dim * 4, p);
}

template <int kPerLane>
void launch_attend_heads(const LaunchContext& context, const AttentionParams& p) {
  const int per_kv = p.heads / p.kv_heads;
  if (per_kv <= 2) return launch_attend<kPerLane, 2>(context, p);
  if (per_kv <= 4) return launch_attend<kPerLane, 4>(context, p);
  launch_attend<kPerLane, 8>(context, p);
}

}  // namespace

std::int64_t attention_work_floats(int multiprocessors, int heads, int kv_heads, int head_dim) {
  return static_cast<std::int64_t>(4) * multiprocessors * (heads / kv_heads) * (head_dim + 2);
}

void launch_attention(const LaunchContext& context, AttentionParams p) {
  const auto rows = static_cast<unsigned>(p.rows);
  launch(context, append, dim3(static_cast<unsigned>((p.heads + 2 * p.kv_heads + kWarps - 1) / kWarps), rows),
         32 * kWarps, 0, p);
  constexpr int kFlashRows = 16;
  if (p.most_rows >= kFlashRows && flash_attention_fits(context, p)) return launch_flash_attention(context, p);
  p.splits = std::clamp(4 * context.multiprocessors / (p.rows * p.kv_heads), 1, kMaxSplits);
  if (p.head_dim <= 128) {
    launch_attend_heads<4>(context, p);
  } else {
    launch_attend_heads<8>(context, p);
  }
  if (p.splits > 1)
    launch(context, join_splits, dim3(rows, static_cast<unsigned>(p.heads)), (p.head_dim + 31) / 32 * 32, 0, p);
}

}  // namespace pergola::cuda
