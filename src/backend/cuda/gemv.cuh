// The GEMV kernel (gemv.h). A job is a group of 128 outputs of one matrix, or of several whose results are added, or
// several groups of one matrix; its inputs are blocks of 128, dealt to the thread blocks of a cluster. Each thread
// block: weights on their way by bulk copies, own inputs transformed into MMA fragments, eight warps decode and
// multiply (32 of the outputs and every other unit of inputs each), the sums transformed (the transform is linear, so
// parts can be), parts sent to the cluster's first block, which adds them in the order of ranks and writes.
#pragma once

#include "backend/cuda/gemv_job.cuh"
#include "backend/cuda/tile_product.cuh"

namespace pergola::cuda {

template <Family kFamily, int kBlocks>
struct GemvShape {
  static constexpr Operand kOperand = gemv_operand(kFamily);
  static constexpr int kFragment = activation_bytes(kOperand, kBlocks);  ///< bytes of 64 inputs
  static constexpr int kMostRows = rows_of(kOperand, kBlocks);
};

template <Family kFamily, int kBlocks>
__global__ void __launch_bounds__(kGemvThreads, kBlocks == 1 ? 3 : 2) gemv(const __grid_constant__ GemvLaunch params) {
  using namespace gemv_detail;
  using Shape = GemvShape<kFamily, kBlocks>;
  constexpr Operand kOperand = Shape::kOperand;
  constexpr int kFragment = Shape::kFragment, kMostRows = Shape::kMostRows;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[2 * kGemvMaxSlots + 1];
  __shared__ GemvSegment segments[kGemvMaxSegments];
  __shared__ __align__(16) __half svh[kGemvMaxSegments][128];

  const GemvCommon& common = params.common;
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int size = cluster_size(), rank = cluster_rank();
  const int slot_bytes = 2 * common.block_bytes, slots = common.slots;
  const std::uint32_t ring = shared_address(memory), full = shared_address(barriers), empty = full + 8 * kGemvMaxSlots,
                      arrived = full + 16 * kGemvMaxSlots;
  unsigned char* const fragments = memory + slots * slot_bytes;
  float* const sums =
      reinterpret_cast<float*>(fragments + common.local_blocks * 2 * kFragment);  // [segment][part][row][128]
  float* const inbox =
      sums + common.segments * 2 * common.max_rows * 128;  // [rank][row][128], of the cluster's first block
  float2* const scales =
      reinterpret_cast<float2*>(inbox + (size > 1 ? size * common.max_rows * 128 : 0));  // [block][row]

  __shared__ int picks[16];
  Place place(params, static_cast<int>(blockIdx.x) / size);
  if (thread == 0) {
    for (int i = 0; i < slots; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, kWarps);
    }
    barrier_init(arrived, 1);
    fence_barrier_init();
  }
  if (Job(params, place, picks).template dense<kMostRows>()) {
    allow_next_kernel();
    cluster_arrive_relaxed();
    cluster_wait();
    return;
  }
  // The weights of down are known before the kernel before has finished: the picks were made two launches ago, and
  // every block of the launch before this one has waited for that.
  const bool weights_are_known = params.kind != GemvKind::gate_up;
  if (!weights_are_known) wait_for_previous_kernel();
  if (!gather(params, place, picks)) {
    if (weights_are_known) wait_for_previous_kernel();
    allow_next_kernel();
    cluster_arrive_relaxed();
    cluster_wait();
    return;
  }
  const Job job(params, place, picks);
  const int rows = job.rows(), blocks = job.blocks();
  const int first = rank * blocks / size, local = (rank + 1) * blocks / size - first;
  const int first_segment = job.segment_of(first);
  const int segment_count = local > 0 ? job.segment_of(first + local - 1) - first_segment + 1 : 0;
  if (thread < segment_count) job.resolve(first_segment + thread, segments[thread]);

  // --- weights, two blocks of inputs a slot
  const int rounds = (local + 1) / 2;
  const auto fill = [&](int round, int slot) {
    const std::uint32_t to = ring + slot * slot_bytes, barrier = full + 8 * slot;
    const int here = min(2, local - 2 * round);
    const std::byte* from[2];
    std::uint32_t bytes[2], all = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= here) continue;
      const int block = first + 2 * round + i;
      const GemvSegment& segment = segments[job.segment_of(block) - first_segment];
      bytes[i] = 2048u * static_cast<std::uint32_t>(segment.bits);
      from[i] =
          segment.task.weights + static_cast<std::int64_t>(block - job.segment_begin(job.segment_of(block))) * bytes[i];
      all += bytes[i];
    }
    barrier_expect(barrier, all);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i < here) bulk_copy_once(to + i * common.block_bytes, from[i], bytes[i], barrier);
    }
  };
  // As early as can be: one thread has made the barriers and, with a single matrix, its description.
  __syncwarp();
  if (thread == 0) {
    for (int i = 0; i < min(slots, rounds); ++i) fill(i, i);
    if (rank == 0 && size > 1) barrier_expect(arrived, static_cast<std::uint32_t>(size * rows * 512));
  }
  __syncwarp();
  cluster_arrive_relaxed();  // the barriers' initialisation has its own fence
  __syncthreads();
  if (thread == kGemvThreads - 1) job.look_ahead();
  // --- signs of the inputs on their way; scales of the outputs, used at the very end
  const bool is_separate = job.is_separate();
  const int inputs = is_separate ? job.part_inputs() : local;
  for (int i = thread; i < inputs * 2; i += kGemvThreads) {
    const int block = first + (i >> 1);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(segments[job.segment_of(block) - first_segment].task.suh +
                                                  (block - job.segment_begin(job.segment_of(block))) * 128 +
                                                  (i & 1) * 64));
  }
  for (int i = kGemvThreads - 1 - thread; i < segment_count * 16; i += kGemvThreads) {
    const int s = i >> 4, column = (i & 15) * 8;
    *reinterpret_cast<uint4*>(&svh[s][column]) = *reinterpret_cast<const uint4*>(segments[s].task.svh + column);
  }
  if (weights_are_known) wait_for_previous_kernel();
  allow_next_kernel();  // not earlier: kernels that wait would take the room of those that could run

  // --- inputs: a warp a block of 128, four values a lane
  const int items = rows * inputs;
  for (int item = warp; item < items; item += kWarps) {
    const int row = item / inputs, here = item - row * inputs, block = first + here,
              in_block = block - job.segment_begin(job.segment_of(block));
    float v[4];
    load_four(segments[job.segment_of(block) - first_segment].task, common, job.x_row(row), in_block * 128 + lane * 4,
              v);
    hadamard128(v, lane);
    // The lane's values are rows 4 * (lane & 3) .. of 16 in band (lane >> 2) & 3 of unit lane >> 4.
    const int half = (lane >> 1) & 1, band = (lane >> 2) & 3;
    unsigned char* const to = fragments + (here * 2 + (lane >> 4)) * kFragment;
    if constexpr (kOperand == Operand::pairs) {
      std::uint32_t* const at = reinterpret_cast<std::uint32_t*>(to + (row >> 3) * 1024 + (lane & 1) * 512 +
                                                                 ((row & 7) * 4 + band) * 16 + half * 4);
      at[0] = pack_half(v[0] * kHadamardScale, v[1] * kHadamardScale);
      at[2] = pack_half(v[2] * kHadamardScale, v[3] * kHadamardScale);
    } else {  // integers of 16 bits, one scale for the 128 of a block
      const float mine = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
      const float most = fmaxf(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(mine))), 1.17549435e-38f);
      const float inverse = kIntegerRange / most;
      int upper[4], lower[4], total = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int value = __float2int_rn(v[i] * inverse);
        total += value;
        upper[i] = (value + 128) >> 8;
        lower[i] = value - upper[i] * 256;
      }
      total = __reduce_add_sync(~0u, total);
      const std::uint32_t u = pack_bytes(upper[0], upper[1], upper[2], upper[3]),
                          l = pack_bytes(lower[0], lower[1], lower[2], lower[3]);
      // Lanes with rows 0..7 gather upper bytes of all 16 rows, the others lower ones.
      const std::uint32_t other = __shfl_xor_sync(~0u, half == 0 ? l : u, 2), low = half == 0 ? u : other,
                          high = half == 0 ? other : l;
      const int column = 2 * row + half;
      *reinterpret_cast<uint2*>(to + (column >> 3) * 512 + ((column & 7) * 4 + band) * 16 + (lane & 1) * 8) =
          make_uint2(permute(low, high, 0x5140), permute(low, high, 0x7362));
      // A product sum S stands for scale * (kByteSumScale * S + kByteSumOffset * total).
      const float scale = most * (kHadamardScale / kIntegerRange);
      if (lane == 0)
        scales[here * common.max_rows + row] =
            make_float2(scale * kByteSumScale, scale * kByteSumOffset * static_cast<float>(total));
    }
  }
  __syncthreads();

  // --- decode and multiply: a warp has one unit of each block, and in it one tile of each half
  const int q = lane & 3, g = lane >> 2, tile = warp & 3, unit = warp >> 2;
  int lane_before = (lane - 4) & 31;
  asm volatile("" : "+r"(lane_before));  // keep it in a register
  const std::uint32_t own_fragments = shared_address(fragments) + unit * kFragment + lane * 16;
  // bytes: row n * 4 + q, columns g and g + 8; pairs: MMA accumulators.
  constexpr int kOuts = kOperand == Operand::bytes ? 2 : 4;
  float out[2][kBlocks][kOuts];
  int slot = 0;
  std::uint32_t parity = 0;
  const auto run = [&]<int K>(int from, int to) {
    const int first_input = is_separate ? from : 0;
#pragma unroll 1
    for (int here = from; here < to; ++here) {
      const int input = here - first_input;
      if ((here & 1) == 0) barrier_wait(full + 8 * slot, parity);
      const std::uint32_t words =
          ring + slot * slot_bytes + (here & 1) * common.block_bytes + unit * 1024 * K + lane * 16;
      std::uint32_t b[kBlocks][16];
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
        load_fragments<kOperand>(own_fragments + input * 2 * kFragment + n * (kOperand == Operand::bytes ? 512 : 1024),
                                 b[n]);
      ColumnPair<K> pair[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_tile_words<K>(words + half * 512 * K, tile, pair[half].word);
        pair[half].previous = __shfl_sync(~0u, pair[half].word[K - 1], lane_before);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        RowSum<kOperand> sum[kBlocks][4];
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if constexpr (kOperand == Operand::bytes) {
              sum[n][j] = 0;
            } else {
              sum[n][j] = out[half][n][j];
            }
          }
        }
        multiply_tile<kFamily, kOperand, K, kBlocks>(pair[half], common.constants, b, sum);
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
          if constexpr (kOperand == Operand::bytes) {
            const float2 scale = scales[input * common.max_rows + min(n * 4 + q, common.max_rows - 1)];
#pragma unroll
            for (int j = 0; j < 2; ++j)
              out[half][n][j] +=
                  scale.x * (static_cast<float>(sum[n][2 * j]) * 256.0f + static_cast<float>(sum[n][2 * j + 1]));
            if (unit == 0) {  // the block's offset counts once
              out[half][n][0] += scale.y;
              out[half][n][1] += scale.y;
            }
          } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) out[half][n][j] = sum[n][j];
          }
        }
      }
      if ((here & 1) == 0 && here + 1 < local) continue;
      if (rounds > slots) {  // the slot is free; a different warp each time sees to its next content
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(empty + 8 * slot);
          const int round = here >> 1;
          if (warp == (round & (kWarps - 1)) && round + slots < rounds) {
            barrier_wait(empty + 8 * slot, parity);
            fill(round + slots, slot);
          }
        }
        __syncwarp();
      }
      if (++slot == slots) {
        slot = 0;
        parity ^= 1;
      }
    }
  };
  for (int s = 0, from = 0; s < segment_count; ++s) {
    const int to = min(local, job.segment_end(first_segment + s) - first);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < kOuts; ++j) out[half][n][j] = 0;
      }
    }
    // Branches rather than a table of targets, which would first have to be fetched.
    const int bits = segments[s].bits - 1;
    if ((bits & 4) != 0) {
      if ((bits & 2) != 0) {
        (bits & 1) != 0 ? run.template operator()<8>(from, to) : run.template operator()<7>(from, to);
      } else {
        (bits & 1) != 0 ? run.template operator()<6>(from, to) : run.template operator()<5>(from, to);
      }
    } else if ((bits & 2) != 0) {
      (bits & 1) != 0 ? run.template operator()<4>(from, to) : run.template operator()<3>(from, to);
    } else {
      (bits & 1) != 0 ? run.template operator()<2>(from, to) : run.template operator()<1>(from, to);
    }
    float* at = sums + (s * 2 + unit) * common.max_rows * 128 + tile * 16 + g;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < kOuts; ++j) {
          const int row = kOperand == Operand::bytes ? n * 4 + q : n * 8 + 2 * q + (j & 1);
          const int column = half * 64 + (kOperand == Operand::bytes ? 8 * j : 8 * (j >> 1));
          if (row < rows) at[row * 128 + column] = out[half][n][j];
        }
      }
    }
    from = to;
  }
  __syncthreads();

  // --- sums of the block, transformed; parts to the first block of the cluster
  cluster_wait();  // the first block's barrier is ready
  const int outs = is_separate ? rows * segment_count : rows;
  for (int at = warp; at < outs; at += kWarps) {
    const int row = is_separate ? at / segment_count : at, from = is_separate ? at % segment_count : 0,
              end = is_separate ? from + 1 : segment_count;
    float y[4] = {};
    for (int s = from; s < end; ++s) {
      const float* parts = sums + (s * 2 * common.max_rows + row) * 128 + lane * 4;
      const float4 a = *reinterpret_cast<const float4*>(parts),
                   b = *reinterpret_cast<const float4*>(parts + common.max_rows * 128);
      float z[4] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
      const GemvSegment& segment = segments[s];
      hadamard128(z, lane);
      const __half2* outputs = reinterpret_cast<const __half2*>(&svh[s][lane * 4]);
      const float2 s01 = __half22float2(outputs[0]), s23 = __half22float2(outputs[1]);
      const float factor = segment.weight * kHadamardScale;
      y[0] += factor * s01.x * z[0];
      y[1] += factor * s01.y * z[1];
      y[2] += factor * s23.x * z[2];
      y[3] += factor * s23.y * z[3];
      // The block that has the matrix's first inputs adds its bias.
      if (segment.task.bias != nullptr && (is_separate || s > 0 || first == job.segment_begin(first_segment))) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (lane * 4 + i < job.columns(s)) y[i] += segment.weight * __half2float(segment.task.bias[lane * 4 + i]);
      }
    }
    if (size == 1) {
      job.write(from, row, lane, y);
    } else {
      store_to_rank(shared_of_rank(shared_address(inbox + (rank * rows + row) * 128 + lane * 4), 0), y,
                    shared_of_rank(arrived, 0));
    }
  }
  if (size == 1 || rank != 0) return;
  barrier_wait(arrived, 0);
  for (int row = warp; row < rows; row += kWarps) {
    float y[4] = {};
    for (int other = 0; other < size; ++other) {
      const float4 v = *reinterpret_cast<const float4*>(inbox + (other * rows + row) * 128 + lane * 4);
      y[0] += v.x;
      y[1] += v.y;
      y[2] += v.z;
      y[3] += v.w;
    }
    job.write(0, row, lane, y);
  }
}

}  // namespace pergola::cuda
