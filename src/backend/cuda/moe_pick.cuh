// The choice of a row's experts, by one warp.
#pragma once

#include "backend/cuda/moe_kernels.h"

namespace pergola::cuda {

/// A number that orders as the float does; both zeros are one.
__device__ __forceinline__ std::uint32_t order_of(float v) {
  const std::uint32_t bits = __float_as_uint(v + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of(std::uint32_t order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu : ~order);
}

/// A warp finds a row's experts among up to 32 * kPerLane: the largest logits, the lowest expert first among equals,
/// and softmax over those. Returns the expert of rank `last`; with `write` (then last == top_k - 1) all of them are
/// stored.
template <int kPerLane>
__device__ __forceinline__ int pick_experts_of(const MoeParams& p, int row, int last, bool write) {
  const int lane = threadIdx.x & 31;
  const float* logits = p.logits + static_cast<std::int64_t>(row) * p.logits_stride;
  std::uint32_t order[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    order[i] = i * 32 + lane < p.experts ? order_of(__ldcg(logits + i * 32 + lane)) : 0;
  float first = 0, total = 0, mine = 0;
  int expert = 0, my_expert = 0;
  for (int rank = 0; rank <= last; ++rank) {
    std::uint32_t best = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (order[i] > best) {
        best = order[i];
        at = i;
      }
    }
    const std::uint32_t most = __reduce_max_sync(~0u, best);
    // Logits that are not numbers may leave nothing to pick: any expert then, so that nothing is read out of range.
    expert = min(static_cast<int>(
                     __reduce_min_sync(~0u, best == most ? static_cast<std::uint32_t>(at * 32 + lane) : 0x7FFFFFFFu)),
                 p.experts - 1);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i * 32 + lane == expert) order[i] = 0;
    }
    const float value = value_of(most);
    if (rank == 0) first = value;
    const float weight = __expf(value - first);
    total += weight;
    if (lane == rank) {
      mine = weight;
      my_expert = expert;
    }
  }
  if (write && lane <= last) {
    p.pick_expert[row * p.top_k + lane] = my_expert;
    p.pick_weight[row * p.top_k + lane] = mine / total;
  }
  return expert;
}

static __device__ __noinline__ int pick_experts_many(const MoeParams& p, int row, int last, bool write) {
  if (p.experts <= 512) return pick_experts_of<16>(p, row, last, write);
  return pick_experts_of<kMaxExperts / 32>(p, row, last, write);
}

__device__ __forceinline__ int pick_experts(const MoeParams& p, int row, int last, bool write) {
  if (p.experts <= 256) return pick_experts_of<8>(p, row, last, write);
  return pick_experts_many(p, row, last, write);
}

}  // namespace pergola::cuda
