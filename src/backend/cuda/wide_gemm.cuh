// The kernel of wide_gemm.h: two warpgroups, 64 outputs each. While the tensor cores work on one unit of 64 inputs, the
// warps decode the next into the other half of their operand registers.
#pragma once

#include "backend/cuda/hadamard.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/tile_product.cuh"
#include "backend/cuda/wgmma.cuh"
#include "backend/cuda/wide_gemm.h"

namespace pergola::cuda {

struct WideParams {
  TaskList list;
  CodebookConstants constants;
};

template <int K>
struct WideShape {
  static constexpr int kThreads = 256, kStages = 4, kSumStride = 132;
  static constexpr int kUnitBytes = 1024 * K, kStageBytes = kUnitBytes + kWideActivationBytes;
  static constexpr int kRingBytes = kStages * kStageBytes, kSumBytes = kWideRows * kSumStride * 4;
  static constexpr int kSharedBytes = kRingBytes > kSumBytes ? kRingBytes : kSumBytes;
};

template <Family kFamily, int K>
__global__ void __launch_bounds__(256, 2) wide_gemm(const __grid_constant__ WideParams params) {
  using Shape = WideShape<K>;
  constexpr int kStages = Shape::kStages, kWarps = Shape::kThreads / 32;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ std::uint64_t barriers[2 * kStages];
  __shared__ TrellisTask task;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, q = lane & 3, g = lane >> 2;
  const std::uint32_t ring = shared_address(memory), full = shared_address(barriers), empty = full + 8 * kStages;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int index = blockIdx.y, group = blockIdx.x;
  if (index >= (params.list.table == nullptr ? params.list.count : *params.list.table_count)) return;
  if (thread < static_cast<int>(sizeof(TrellisTask) / 4)) {
    const TrellisTask* from = params.list.table == nullptr ? params.list.tasks : params.list.table;
    reinterpret_cast<std::uint32_t*>(&task)[thread] = reinterpret_cast<const std::uint32_t*>(from + index)[thread];
  }
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (group >= task.column_groups) return;
  const int units = task.k_units;
  const std::byte* const weights = task.weights + static_cast<std::int64_t>(group) * units * Shape::kUnitBytes;
  const auto fill = [&](int unit) {
    const std::uint32_t to = ring + unit % kStages * Shape::kStageBytes, barrier = full + 8 * (unit % kStages);
    barrier_expect(barrier, Shape::kStageBytes);
    bulk_copy(to, weights + static_cast<std::int64_t>(unit) * Shape::kUnitBytes, Shape::kUnitBytes, barrier);
    bulk_copy(to + Shape::kUnitBytes, task.activations + static_cast<std::int64_t>(unit) * kWideActivationBytes,
              kWideActivationBytes, barrier);
  };
  if (lane == 0 && warp < min(kStages, units)) fill(warp);

  int lane_before = (lane - 4) & 31;
  asm volatile("" : "+r"(lane_before));  // keep it in a register
  const int half = warp >> 2, tile = warp & 3;
  float sum[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) sum[i] = 0;
  std::uint32_t operand[2][16];
  const auto step = [&](int unit, std::uint32_t(&a)[16]) {
    const int stage = unit % kStages;
    const std::uint32_t base = ring + stage * Shape::kStageBytes;
    barrier_wait(full + 8 * stage, static_cast<std::uint32_t>(unit / kStages & 1));
    ColumnPair<K> pair;
    load_tile_words<K>(base + half * 512 * K + lane * 16, tile, pair.word);
    pair.previous = __shfl_sync(~0u, pair.word[K - 1], lane_before);
    exact_operands<kFamily, K>(pair, params.constants, a);
    // Operands and sums stay where they are while the tensor cores use them.
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[i])::"memory");
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(sum[i])::"memory");
    wgmma_fence();
    const std::uint64_t b = wgmma_tile(base + Shape::kUnitBytes, kWideRows * 16, 128);
#pragma unroll
    for (int p = 0; p < 4; ++p)
      wgmma_m64n64k16(sum, a[4 * p], a[4 * p + 1], a[4 * p + 2], a[4 * p + 3],
                      b + static_cast<std::uint64_t>(p * 2 * kWideRows * 16 >> 4));
    wgmma_commit();
    wgmma_wait<1>();  // the unit before is done: its stage is free
    if (unit == 0) return;
    const int before = unit - 1;
    if (lane == 0) {
      barrier_arrive(empty + 8 * (before % kStages));
      if (warp == (before & (kWarps - 1)) && before + kStages < units) {
        barrier_wait(empty + 8 * (before % kStages), static_cast<std::uint32_t>(before / kStages & 1));
        fill(before + kStages);
      }
    }
    __syncwarp();
  };
#pragma unroll 1
  for (int unit = 0; unit < units; unit += 2) {
    step(unit, operand[0]);
    if (unit + 1 < units) step(unit + 1, operand[1]);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(sum[i])::"memory");
  __syncthreads();  // the ring is not needed any more
  float* const sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[(j * 8 + 2 * q + (e & 1)) * Shape::kSumStride + half * 64 + tile * 16 + g + 8 * (e >> 1)] = sum[j * 4 + e];
  }
  __syncthreads();
  for (int row = warp; row < task.rows; row += kWarps) {
    const float4 four = *reinterpret_cast<const float4*>(sums + row * Shape::kSumStride + lane * 4);
    float z[4] = {four.x, four.y, four.z, four.w};
    hadamard128(z, lane);
    write_row(task, row, group, lane, z);
  }
}

template <Family kFamily, int K>
void launch_wide_kernel(const LaunchContext& context, const WideParams& params, int groups) {
  launch(context, wide_gemm<kFamily, K>, dim3(static_cast<unsigned>(groups), static_cast<unsigned>(params.list.count)),
         WideShape<K>::kThreads, WideShape<K>::kSharedBytes, params);
}

template <Family kFamily>
void launch_wide_family(const LaunchContext& context, const WideParams& params, int bits, int groups) {
  switch (bits) {
    case 1:
      return launch_wide_kernel<kFamily, 1>(context, params, groups);
    case 2:
      return launch_wide_kernel<kFamily, 2>(context, params, groups);
    case 3:
      return launch_wide_kernel<kFamily, 3>(context, params, groups);
    case 4:
      return launch_wide_kernel<kFamily, 4>(context, params, groups);
    case 5:
      return launch_wide_kernel<kFamily, 5>(context, params, groups);
    case 6:
      return launch_wide_kernel<kFamily, 6>(context, params, groups);
    case 7:
      return launch_wide_kernel<kFamily, 7>(context, params, groups);
    default:
      return launch_wide_kernel<kFamily, 8>(context, params, groups);
  }
}

/// One translation unit each.
void launch_wide_half_pair(const LaunchContext& context, const WideParams& params, int bits, int groups);
void launch_wide_byte_sum(const LaunchContext& context, const WideParams& params, int bits, int groups);

}  // namespace pergola::cuda
