// The decode-once product of up to 32 rows: packed trellis words stream through a ring in shared memory, every warp
// decodes its own words into tensor-core operands, and all rows share the decode.
//
// Work is the list of units (64 inputs x 128 outputs) of all tasks, cut into equal contiguous ranges, one a block.
// Sixteen warps take half a unit each of stages of eight units and their activations; one thread keeps the copy engine
// busy (before Hopper: every thread copies its share). Where a column group's inputs are spread over several blocks,
// each leaves its part in memory and the last to arrive adds the parts in block order: the result does not depend on
// timing. No block waits for another.
#pragma once

#include <type_traits>

#include "backend/cuda/input_transform.cuh"
#include "backend/cuda/packed_gemm_table.h"
#include "backend/cuda/trellis_decode.cuh"

namespace pergola::cuda {

template <Family kFamily, int K, Operand kOperand, int kBlocks>
struct PackedGemmShape {
  static constexpr int kThreads = 512;
  static constexpr int kUnits = kThreads / 64;  ///< units of a stage
  static constexpr int kRows = rows_of(kOperand, kBlocks);
  static constexpr int kUnitBytes = 1024 * K;
  static constexpr int kActivationBytes = activation_bytes(kOperand, kBlocks);
  static constexpr int kStageBytes = kUnits * (kUnitBytes + kActivationBytes);
  static constexpr int kSums = kBlocks <= 2 ? 4 : 2;     ///< buffers that the eight unit slots are added into
  static constexpr int kSumStride = 132;                 ///< floats a row, padded against bank conflicts
  static constexpr int kSumFloats = kRows * kSumStride;  ///< of one buffer
  static constexpr int kPending = kBlocks == 1 ? 4 : 2;  ///< column groups that wait for the end of the block's share
  static constexpr int kSumBytes = (kSums + kPending) * kSumFloats * 4;
  static constexpr int kMaxStages = 8;
  static constexpr int shared_bytes(int stages) { return stages * kStageBytes + kSumBytes; }
};

namespace packed_gemm_detail {

__device__ __forceinline__ int first_unit_of_block(int block, int units, int blocks) {
  return static_cast<int>(static_cast<unsigned>(block) * static_cast<unsigned>(units) / static_cast<unsigned>(blocks));
}

__device__ __forceinline__ int block_of_unit(int unit, int units, int blocks) {
  return static_cast<int>((static_cast<unsigned>(unit + 1) * static_cast<unsigned>(blocks) - 1) /
                          static_cast<unsigned>(units));
}

/// The tasks that a block touches, in shared memory: looked up all the time, so not left in memory far away.
struct TaskCache {
  TrellisTask tasks[kTaskCache];
};

/// Copies tasks [first, ...) of the list to the cache, all threads.
__device__ __forceinline__ void cache_tasks(const TaskList& list, int first, int count, TaskCache& cache) {
  constexpr int kWords = sizeof(TrellisTask) / 4;
  const int words = min(count - first, kTaskCache) * kWords;
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    reinterpret_cast<std::uint32_t*>(cache.tasks)[i] =
        list.table == nullptr ? reinterpret_cast<const std::uint32_t*>(list.tasks)[first * kWords + i]
                              : reinterpret_cast<const std::uint32_t*>(list.table)[first * kWords + i];
  }
}

/// Where a walk over stages stands: stages never cross a task.
struct StageWalk {
  const TrellisTask* tasks;
  int task, task_end, unit, last;

  __device__ __forceinline__ StageWalk(const TrellisTask* cached, int first, int end)
      : tasks(cached), task(0), unit(first), last(end) {
    task_end = cached[0].first_unit + cached[0].k_units * cached[0].column_groups;
  }
  __device__ __forceinline__ bool done() const { return unit >= last; }
  __device__ __forceinline__ int size(int most) const { return min(most, min(last, task_end) - unit); }
  /// Whether a new task was entered.
  __device__ __forceinline__ bool advance(int by) {
    unit += by;
    if (unit < task_end || unit >= last) return false;
    task++;
    task_end += tasks[task].k_units * tasks[task].column_groups;
    return true;
  }
};

/// The walk of the copies.
struct Fill : StageWalk {
  const std::byte* weights;
  const std::byte* activations;
  int k, k_units;

  __device__ __forceinline__ Fill(const TrellisTask* cached, int first, int end, int unit_bytes)
      : StageWalk(cached, first, end) {
    start(unit_bytes);
  }
  __device__ __forceinline__ void advance(int by, int unit_bytes) {
    weights += static_cast<std::int64_t>(by) * unit_bytes;
    k += by;
    while (k >= k_units) k -= k_units;
    if (StageWalk::advance(by)) start(unit_bytes);
  }
  __device__ __forceinline__ void start(int unit_bytes) {
    const TrellisTask& now = tasks[task];
    k_units = now.k_units;
    k = (unit - now.first_unit) % k_units;
    weights = now.weights + static_cast<std::int64_t>(unit - now.first_unit) * unit_bytes;
    activations = now.activations;
  }
};

/// Scales of the rows of the tasks whose inputs a block prepared itself (Operand::bytes).
struct OwnScales {
  int largest[kMaxFusedTasks][kMaxFusedRows];  ///< bits of a float that is not negative
  int total[kMaxFusedTasks][kMaxFusedRows];

  __device__ __forceinline__ void clear(int i) { largest[0][i] = total[0][i] = 0; }
};

/// Inputs of one row and four 128-blocks, transformed.
__device__ __forceinline__ bool transform_item(const TaskList& list, const TrellisTask& task, int row, int quad,
                                               float (&low)[8], float (&high)[8]) {
  const int lane = threadIdx.x & 31, sub = lane & 7, block = quad * 4 + (lane >> 3);
  const bool inside = block * 2 < task.k_units;
#pragma unroll
  for (int i = 0; i < 8; ++i) low[i] = high[i] = 0;
  if (inside) {
    const std::int64_t source = task.x_rows != nullptr ? task.x_rows[row] : row;
    load_input(list, task, source, block, sub, low, high);
  }
  hadamard_block(low, high, sub);
  return inside;
}

/// Prepares the inputs of the first `touched` cached tasks in shared memory: a unit's fragments are [row (bytes: upper,
/// lower)][band] for bytes, [half][row][band] for pairs, 16 bytes each, without room for rows that a task does not
/// have.
template <Operand kOperand>
__device__ __forceinline__ void prepare_own_inputs(const TaskList& list, const TrellisTask* tasks, int touched,
                                                   std::byte* to, int task_bytes, OwnScales& scales) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, sub = lane & 7;
  const int capacity = list.max_rows;
  float low[8], high[8];
  const auto for_items = [&](auto&& visit) {
    int before = 0;
    for (int t = 0; t < touched; ++t) {
      const int quads = (tasks[t].k_units + 7) / 8, items = tasks[t].rows * quads;
      for (int i = (warp - before) & 15; i < items; i += 16) visit(t, i / quads, i % quads);
      before += items;
    }
    return before;
  };
  const auto unit_of = [&](int t, int quad) {
    return to + t * task_bytes + (quad * 4 + (lane >> 3)) * 2 * 128 * capacity;
  };
  if constexpr (kOperand == Operand::pairs) {
    for_items([&](int t, int row, int quad) {
      if (!transform_item(list, tasks[t], row, quad, low, high)) return;
      std::byte* at = unit_of(t, quad) + (sub & 1) * 64 * capacity + (row * 4 + (sub >> 1)) * 16;
      *reinterpret_cast<uint4*>(at) = half_fragments(sub, low);
      *reinterpret_cast<uint4*>(at + 128 * capacity) = half_fragments(sub, high);
    });
  } else {
    const int all = for_items([&](int t, int row, int quad) {
      transform_item(list, tasks[t], row, quad, low, high);
      const float most = largest(low, high);
      if (lane == 0) atomicMax(&scales.largest[t][row], __float_as_int(most));
    });
    __syncthreads();
    for_items([&](int t, int row, int quad) {
      bool inside = (quad * 4 + (lane >> 3)) * 2 < tasks[t].k_units;
      if (all > 16)
        inside = transform_item(list, tasks[t], row, quad, low, high);  // otherwise the only item is still in registers
      const float inverse = kIntegerRange / fmaxf(__int_as_float(scales.largest[t][row]), 1.17549435e-38f);
      int a[8], b[8];
      int total = to_integers(low, inverse, a) + to_integers(high, inverse, b);
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) total += __shfl_xor_sync(~0u, total, step);
      if (lane == 0) atomicAdd(&scales.total[t][row], total);
      if (!inside) return;
      std::byte* at = unit_of(t, quad) + ((2 * row + (sub & 1)) * 4 + (sub >> 1)) * 16;
      *reinterpret_cast<uint4*>(at) = byte_fragments(sub, a);
      *reinterpret_cast<uint4*>(at + 128 * capacity) = byte_fragments(sub, b);
    });
  }
  __syncthreads();
}

/// A lane's words of half a unit: four column pairs of K words, and the word before each.
template <int K>
struct HalfUnit {
  std::uint32_t word[4 * K];
  std::uint32_t previous[4];

  /// Reads the rows of 16 bytes in which the words of pairs [first, last] begin.
  __device__ __forceinline__ void load(std::uint32_t address, int first, int last) {
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if ((4 * i) / K < first || (4 * i) / K > last) continue;
      const uint4 row = load_shared(address + i * 512);
      word[4 * i] = row.x;
      word[4 * i + 1] = row.y;
      word[4 * i + 2] = row.z;
      word[4 * i + 3] = row.w;
    }
  }
  __device__ __forceinline__ void exchange(int tile, int lane_before) {
    previous[tile] = __shfl_sync(~0u, word[tile * K + K - 1], lane_before);
  }
  template <int kTile>
  __device__ __forceinline__ ColumnPair<K> pair() const {
    ColumnPair<K> result;
#pragma unroll
    for (int i = 0; i < K; ++i) result.word[i] = word[kTile * K + i];
    result.previous = previous[kTile];
    return result;
  }
};

}  // namespace packed_gemm_detail

template <Family kFamily, int K, Operand kOperand, int kBlocks>
__global__ void __launch_bounds__(512, 1) packed_gemm(const __grid_constant__ PackedGemmParams params) {
  using namespace packed_gemm_detail;
  using Shape = PackedGemmShape<kFamily, K, kOperand, kBlocks>;
  using Sum = std::conditional_t<kOperand == Operand::bytes, int, float>;
  constexpr int kRows = Shape::kRows, kUnits = Shape::kUnits;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ std::uint64_t barriers[2 * Shape::kMaxStages];
  __shared__ int arrived_last[Shape::kPending], pending_task[Shape::kPending], pending_index[Shape::kPending];
  __shared__ int pending_from[Shape::kPending], pending_to[Shape::kPending], pending_side[Shape::kPending];
  constexpr bool kMayFuse = kBlocks == 1 && kOperand != Operand::packed;
  __shared__ OwnScales own_scales;
  __shared__ TaskCache task_cache;

  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const std::uint32_t ring = shared_address(memory), full = shared_address(barriers),
                      empty = full + 8 * Shape::kMaxStages;
  const int stages = params.stages;
  float* sums = reinterpret_cast<float*>(memory + stages * Shape::kStageBytes);
  const bool fused = kMayFuse && params.fused_tasks > 0;
  const int activation_stride = fused ? 0 : Shape::kActivationBytes;

  if (thread == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(full + 8 * i, kHasBulkCopy ? 1 : Shape::kThreads);
      barrier_init(empty + 8 * i, Shape::kThreads / 32);
    }
    fence_barrier_init();
  }
  if (kMayFuse && kOperand == Operand::bytes && thread < kMaxFusedTasks * kMaxFusedRows) own_scales.clear(thread);
  const bool fixed = params.list.table == nullptr;
  if (!fixed) {
    wait_for_previous_kernel();  // the table itself is another kernel's output
    allow_next_kernel();
  }
  const int count = fixed ? params.list.count : params.list.table_count[0];
  int units;
  if (fixed) {
    const TrellisTask& last = params.list.tasks[count - 1];
    units = last.first_unit + last.k_units * last.column_groups;
  } else {
    units = params.list.table_count[1];
  }
  const int blocks = min(static_cast<int>(gridDim.x), max(1, units / 4)), block = blockIdx.x;
  const int first = block < blocks ? first_unit_of_block(block, units, blocks) : 0;
  const int end = block < blocks ? first_unit_of_block(block + 1, units, blocks) : 0;
  if (first >= end) {
    if (fixed) wait_for_previous_kernel();
    return;
  }
  int first_task = -1;
  if (fixed) {
    for (int i = 0; i < count; ++i) first_task += params.list.tasks[i].first_unit <= first ? 1 : 0;
  } else {
    for (int i = 0; i < count; i += Shape::kThreads) {
      first_task += __syncthreads_count(i + thread < count && params.list.table[i + thread].first_unit <= first);
    }
  }
  cache_tasks(params.list, first_task, count, task_cache);
  const TrellisTask* tasks = task_cache.tasks;
  __syncthreads();

  // --- filling the ring: a different warp issues each stage, so that none falls behind
  Fill ahead(tasks, first, end, Shape::kUnitBytes);
  int fill_stage = 0, fill_warp = 0;
  std::uint32_t fill_parity = 1;  // of the slot's release
  bool refill = false;
  const auto fill_weights = [&] {
    const int n = ahead.size(kUnits);
    const std::uint32_t to = ring + fill_stage * Shape::kStageBytes, barrier = full + 8 * fill_stage;
    if constexpr (kHasBulkCopy) {
      barrier_expect(barrier, n * (Shape::kUnitBytes + activation_stride));
      bulk_copy_once(to, ahead.weights, n * Shape::kUnitBytes, barrier);
    } else {
      for (int i = thread * 16; i < n * Shape::kUnitBytes; i += Shape::kThreads * 16)
        async_copy16(to + i, ahead.weights + i);
    }
  };
  const auto fill_activations = [&] {
    const int n = ahead.size(kUnits);
    const std::uint32_t to = ring + fill_stage * Shape::kStageBytes + kUnits * Shape::kUnitBytes,
                        barrier = full + 8 * fill_stage;
    if constexpr (kHasBulkCopy) {
      if (fused) return;
      for (int done = 0, k = ahead.k; done < n; k = 0) {
        const int part = min(n - done, ahead.k_units - k);
        bulk_copy(to + done * Shape::kActivationBytes,
                  ahead.activations + static_cast<std::int64_t>(k) * Shape::kActivationBytes,
                  part * Shape::kActivationBytes, barrier);
        done += part;
      }
    } else {
      for (int i = thread * 16; i < (fused ? 0 : n) * Shape::kActivationBytes; i += Shape::kThreads * 16) {
        const int k = (ahead.k + i / Shape::kActivationBytes) % ahead.k_units;
        async_copy16(to + i, ahead.activations + static_cast<std::int64_t>(k) * Shape::kActivationBytes +
                                 i % Shape::kActivationBytes);
      }
      async_copies_arrive(barrier);
    }
  };
  const auto fill_advance = [&] {
    ahead.advance(ahead.size(kUnits), Shape::kUnitBytes);
    fill_warp = (fill_warp + 1) & 15;
    if (++fill_stage == stages) {
      fill_stage = 0;
      fill_parity ^= 1;
      refill = true;
    }
  };
  const auto filler = [&] { return !kHasBulkCopy || (warp == fill_warp && lane == 0); };
  const auto fill_next = [&] {
    if (ahead.done()) return;
    if (filler()) {
      if (refill) barrier_wait(empty + 8 * fill_stage, fill_parity);
      fill_weights();
      fill_activations();
    }
    fill_advance();
  };
  // Weights do not depend on the kernel before, activations do. Only one stage is in flight until data flows:
  // concurrent copies share the bandwidth, and the first stage would come late.
  if (filler()) fill_weights();
  if (fused) {
    for (int i = thread * 64; i < tasks[0].k_units * 64; i += Shape::kThreads * 64)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(tasks[0].suh + i));
  }
  if (fixed) {
    wait_for_previous_kernel();
    allow_next_kernel();  // not earlier: kernels that wait would take the room of those that could run
  }
  if (filler()) fill_activations();
  fill_advance();

  // --- the block's own inputs, when nobody prepared them
  std::byte* own_inputs = nullptr;
  if constexpr (kMayFuse) {
    if (fused) {
      own_inputs = reinterpret_cast<std::byte*>(sums) + Shape::kSumBytes;
      int touched = 1;
      while (touched < count - first_task && tasks[touched].first_unit < end) ++touched;
      prepare_own_inputs<kOperand>(params.list, tasks, touched, own_inputs, params.fused_task_bytes, own_scales);
    }
  }

  // --- using it
  const int slot = warp >> 1, half = warp & 1, q = lane & 3, g = lane >> 2;
  int lane_before = (lane - 4) & 31;
  asm volatile("" : "+r"(lane_before));  // keep it in a register
  Sum sum[4][kBlocks][4];
  const auto clear = [&] {
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[tile][n][j] = 0;
      }
    }
  };
  clear();

  // The column group whose sums are being gathered: units [group_first, group_end) of all, inputs complete.
  int group_task = 0, group_index = (first - tasks[0].first_unit) / tasks[0].k_units;
  int group_first = tasks[0].first_unit + group_index * tasks[0].k_units, group_end = group_first + tasks[0].k_units;
  int pending = 0;  // groups whose block-wide sums wait in shared memory
  float* const waiting = sums + Shape::kSums * Shape::kSumFloats;

  const auto add_to = [&](float* buffer, bool overwrite) {
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = half * 64 + tile * 16 + g + 8 * (j >> 1);
          if constexpr (kOperand == Operand::bytes) {
            if ((j & 1) != 0) continue;
            float* at = buffer + (n * 4 + q) * Shape::kSumStride + column;
            const float value = static_cast<float>(sum[tile][n][j]) * 256.0f + static_cast<float>(sum[tile][n][j + 1]);
            *at = overwrite ? value : *at + value;
          } else {
            float* at = buffer + (n * 8 + 2 * q + (j & 1)) * Shape::kSumStride + column;
            *at = overwrite ? sum[tile][n][j] : *at + sum[tile][n][j];
          }
        }
      }
    }
  };

  // Joins the waiting groups with other blocks' parts and writes those that are complete. At the end of a block's
  // share: nothing else is held up by the traffic to memory and back.
  const auto write_pending = [&] {
    constexpr int kValues = kRows * 128 / 512;
    const auto at = [&](int i) { return ((thread + i * 512) >> 7) * Shape::kSumStride + (thread & 127); };
    const auto part_of = [&](int i, int which) {
      return params.scratch.partials +
             static_cast<std::size_t>(2 * which + (which == pending_from[i] ? pending_side[i] : 0)) * kRows * 128;
    };
    for (int i = 0; i < pending; ++i) {
      const int from = pending_from[i], to = pending_to[i];
      if (from == to) continue;
      float* part = part_of(i, block);
#pragma unroll
      for (int v = 0; v < kValues; ++v) __stcg(part + thread + v * 512, waiting[i * Shape::kSumFloats + at(v)]);
    }
    sync_threads<512>(1);
    for (int i = 0; i < pending; ++i) {
      if (thread != i * 32) continue;
      const int from = pending_from[i], to = pending_to[i];
      int last = 1;
      if (from != to) {
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(params.scratch.arrivals + from)
                     : "memory");
        last = before == static_cast<unsigned>(to - from);
        if (last != 0) params.scratch.arrivals[from] = 0;
      }
      arrived_last[i] = last;
    }
    sync_threads<512>(1);
    for (int i = 0; i < pending; ++i) {
      const int from = pending_from[i], to = pending_to[i];
      if (from == to || arrived_last[i] == 0) continue;
      // In block order, several loads in flight.
      constexpr int kBatch = kValues <= 2 ? 8 : 4;
      float value[kValues] = {};
      for (int other = from; other <= to; other += kBatch) {
        float loaded[kBatch][kValues];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const float* part = part_of(i, min(other + j, to));
#pragma unroll
          for (int v = 0; v < kValues; ++v) loaded[j][v] = __ldcg(part + thread + v * 512);
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
#pragma unroll
          for (int v = 0; v < kValues; ++v) value[v] += other + j <= to ? loaded[j][v] : 0.0f;
        }
      }
#pragma unroll
      for (int v = 0; v < kValues; ++v) waiting[i * Shape::kSumFloats + at(v)] = value[v];
    }
    sync_threads<512>(1);
    int turn = 0;
    for (int i = 0; i < pending; ++i) {
      if (arrived_last[i] == 0) continue;
      const TrellisTask& task = tasks[pending_task[i]];
      const int rows = min(task.rows, kRows);
      for (int row = (warp - turn) & 15; row < rows; row += 16) {
        const float4 four =
            *reinterpret_cast<const float4*>(waiting + i * Shape::kSumFloats + row * Shape::kSumStride + lane * 4);
        float z[4] = {four.x, four.y, four.z, four.w};
        if constexpr (kOperand == Operand::bytes) {
          float scale, total;
          if (fused) {
            scale = fmaxf(__int_as_float(own_scales.largest[pending_task[i]][row]), 1.17549435e-38f) / kIntegerRange;
            total = static_cast<float>(own_scales.total[pending_task[i]][row]);
          } else {
            scale = task.row_scales[row];
            total = task.row_scales[kRows + row];
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) z[e] = scale * (kByteSumScale * z[e] + kByteSumOffset * total);
        }
        hadamard128(z, lane);
        write_row(task, row, pending_index[i], lane, z);
      }
      turn += rows;
    }
    pending = 0;
    sync_threads<512>(1);
  };

  // Adds the sums of the block's unit slots in a fixed order and puts the group on the list of waiting ones.
  const auto finish_group = [&] {
    for (int round = kUnits / Shape::kSums - 1; round >= 0; --round) {
      if (slot / Shape::kSums == round)
        add_to(sums + (slot % Shape::kSums) * Shape::kSumFloats, round == kUnits / Shape::kSums - 1);
      sync_threads<512>(1);
    }
    float* to = waiting + pending * Shape::kSumFloats;
#pragma unroll
    for (int i = 0; i < kRows * 128 / 512; ++i) {
      const int at = ((thread + i * 512) >> 7) * Shape::kSumStride + (thread & 127);
      float value = sums[at];
#pragma unroll
      for (int j = 1; j < Shape::kSums; ++j) value += sums[j * Shape::kSumFloats + at];
      to[at] = value;
    }
    if (thread == 0) {
      pending_task[pending] = group_task;
      pending_index[pending] = group_index;
      const int from = block_of_unit(group_first, units, blocks);
      pending_from[pending] = from;
      pending_to[pending] = block_of_unit(group_end - 1, units, blocks);
      pending_side[pending] = first_unit_of_block(from, units, blocks) >= group_first ? 0 : 1;
    } else if (thread < 3) {  // the scales of the group's outputs come from far away
      asm volatile("prefetch.global.L2 [%0];" ::"l"(tasks[group_task].svh + group_index * 128 + (thread - 1) * 64));
    }
    ++pending;
    sync_threads<512>(1);
    clear();
    if (pending == Shape::kPending) write_pending();
    if (++group_index == tasks[group_task].column_groups && group_end < end) {
      ++group_task;
      group_index = 0;
    }
    group_first = group_end;
    group_end += tasks[group_task].k_units;
  };

  // Columns of B beyond the rows repeat one that exists: their sums are never looked at.
  const int own_columns = (kOperand == Operand::bytes ? 2 : 1) * params.list.max_rows;
  const int own_lane = ((g < own_columns ? g : 0) * 4 + q) * 16;
  StageWalk walk(tasks, first, end);
  int own_k = (first - tasks[0].first_unit) % tasks[0].k_units;  // of the stage's first unit
  int stage = 0;
  bool flowing = false;
  std::uint32_t parity = 0;
#pragma unroll 1
  while (!walk.done()) {
    const int n = walk.size(kUnits);
    // An idle slot counts as the stage's last unit, so that nobody is waited for in a stage that they could not enter.
    while (walk.unit + min(slot, n - 1) >= group_end) finish_group();
    // Refills the slot that the stage before the last has left (with two stages only: the last). Not earlier: whoever
    // waits for a slot here has taken part in finishing the group that others may be held up by.
    if (flowing) fill_next();
    barrier_wait(full + 8 * stage, parity);
    if (!flowing) {
      flowing = true;
      for (int i = 1; i < max(2, stages - 1); ++i) fill_next();
    }
    const auto release = [&] {
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + 8 * stage);
    };
    if (slot < n) {
      const std::uint32_t base = ring + stage * Shape::kStageBytes;
      const std::uint32_t words = base + (slot * 2 + half) * (Shape::kUnitBytes / 2) + lane * 16;
      std::uint32_t activations = base + kUnits * Shape::kUnitBytes + slot * Shape::kActivationBytes + lane * 16;
      int second_half = 512;
      if constexpr (kMayFuse) {
        if (fused) {
          const int k_units = tasks[walk.task].k_units;
          int unit = own_k + slot;
          while (unit >= k_units) unit -= k_units;
          activations = shared_address(own_inputs) + walk.task * params.fused_task_bytes +
                        unit * 128 * params.list.max_rows + own_lane;
          second_half = 64 * params.list.max_rows;
        }
      }
      HalfUnit<K> half_unit;
      if constexpr (kBlocks <= 2) half_unit.load(words, 0, 3);
      const auto loaded = [&] {
#pragma unroll
        for (int i = 0; i < 4; ++i) half_unit.exchange(i, lane_before);
        release();
      };
      if constexpr (kOperand == Operand::packed) {
        std::uint32_t b[kBlocks <= 2 ? kBlocks : 1][8];
        const auto load_b = [&](int n8, std::uint32_t(&to)[8]) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const uint4 v = load_shared(activations + n8 * 1024 + c * 512);
            to[4 * c] = v.x;
            to[4 * c + 1] = v.y;
            to[4 * c + 2] = v.z;
            to[4 * c + 3] = v.w;
          }
        };
        if constexpr (kBlocks <= 2) {
#pragma unroll
          for (int n8 = 0; n8 < kBlocks; ++n8) load_b(n8, b[n8]);
          loaded();
        }
        const auto tile = [&]<int kTile>() {
          if constexpr (kBlocks > 2) {
            half_unit.load(words, kTile, kTile);
            half_unit.exchange(kTile, lane_before);
          }
          const ColumnPair<K> pair = half_unit.template pair<kTile>();
          std::uint32_t a[16];
          exact_operands<kFamily, K>(pair, params.constants, a);
#pragma unroll
          for (int n8 = 0; n8 < kBlocks; ++n8) {
            if constexpr (kBlocks > 2) load_b(n8, b[0]);
            const auto& operand = b[kBlocks <= 2 ? n8 : 0];
#pragma unroll
            for (int p = 0; p < 4; ++p)
              mma_f16(sum[kTile][n8], a[4 * p], a[4 * p + 1], a[4 * p + 2], a[4 * p + 3], operand[2 * p],
                      operand[2 * p + 1]);
          }
        };
        tile.template operator()<0>();
        tile.template operator()<1>();
        tile.template operator()<2>();
        tile.template operator()<3>();
      } else {
        std::uint32_t b[kBlocks][16];
#pragma unroll
        for (int n8 = 0; n8 < kBlocks; ++n8) {
          if constexpr (kOperand == Operand::bytes) {
            const uint4 v = load_shared(activations + n8 * 512);
            const std::uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int p = 0; p < 4; ++p) {
              b[n8][4 * p] = permute(four[p], 0, 0x0000);
              b[n8][4 * p + 1] = permute(four[p], 0, 0x1111);
              b[n8][4 * p + 2] = permute(four[p], 0, 0x2222);
              b[n8][4 * p + 3] = permute(four[p], 0, 0x3333);
            }
          } else {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const uint4 v = load_shared(activations + n8 * 1024 + c * second_half);
              const std::uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
              for (int p = 0; p < 2; ++p) {
                b[n8][8 * c + 4 * p] = permute(four[2 * p], 0, 0x1010);
                b[n8][8 * c + 4 * p + 1] = permute(four[2 * p + 1], 0, 0x1010);
                b[n8][8 * c + 4 * p + 2] = permute(four[2 * p], 0, 0x3232);
                b[n8][8 * c + 4 * p + 3] = permute(four[2 * p + 1], 0, 0x3232);
              }
            }
          }
        }
        loaded();
        const auto tile = [&]<int kTile>() {
          const ColumnPair<K> pair = half_unit.template pair<kTile>();
          const auto eight = [&]<int kBlock>() {
            std::uint32_t x[8];
            products8<kFamily, K, kBlock, kBestMasks<kFamily, K>>(pair, params.constants, x);
            if constexpr (kOperand == Operand::pairs) {
#pragma unroll
              for (int i = 0; i < 8; ++i)
                x[i] =
                    masked_halves(x[i], params.constants);  // indexed on purpose: a range-for leaves x in local memory
            }
#pragma unroll
            for (int n8 = 0; n8 < kBlocks; ++n8) {
              const auto& operand = b[n8];
              if constexpr (kOperand == Operand::bytes) {
                mma_u8s8(sum[kTile][n8], x[0], x[4], x[2], x[6], operand[4 * kBlock], operand[4 * kBlock + 1]);
                mma_u8s8(sum[kTile][n8], x[1], x[5], x[3], x[7], operand[4 * kBlock + 2], operand[4 * kBlock + 3]);
              } else {
                mma_f16(sum[kTile][n8], x[0], x[4], x[2], x[6], operand[4 * kBlock], operand[4 * kBlock + 1]);
                mma_f16(sum[kTile][n8], x[1], x[5], x[3], x[7], operand[4 * kBlock + 2], operand[4 * kBlock + 3]);
              }
            }
          };
          eight.template operator()<0>();
          eight.template operator()<1>();
          eight.template operator()<2>();
          eight.template operator()<3>();
        };
        tile.template operator()<0>();
        tile.template operator()<1>();
        tile.template operator()<2>();
        tile.template operator()<3>();
      }
    }
    if (!(kBlocks <= 2 && slot < n)) release();
    own_k += n;
    if (walk.advance(n)) own_k = 0;
    for (const int k_units = tasks[walk.task].k_units; own_k >= k_units;) own_k -= k_units;
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  while (group_first < end) finish_group();
  if (pending > 0) write_pending();
}

}  // namespace pergola::cuda
