// The parts of a mixture-of-experts layer that are not matrix products: choosing experts, ordering picks into tasks,
// the weighted sum.
#include <cfloat>

#include "backend/cuda/dot.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_kernels.h"
#include "backend/cuda/moe_pick.cuh"

namespace pergola::cuda {

namespace {

constexpr int kPlanThreads = 1024;

struct RouteParams {
  MoeParams moe;
  const __half* weight;  ///< [columns, hidden]
  int columns;
};

constexpr int kRouteRows = 4;  ///< of a thread block

/// Logits, a warp a column and a few rows.
__global__ void __launch_bounds__(256) route(const __grid_constant__ RouteParams p) {
  const int column = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5)), lane = threadIdx.x & 31,
            first = blockIdx.y * kRouteRows, k = p.moe.hidden;
  const int rows = min(kRouteRows, p.moe.rows - first);
  const __half* weight = p.weight + static_cast<std::int64_t>(column) * k;
  allow_next_kernel();
  DenseStretch weights;
  if (column < p.columns) weights.load(weight, 0, k);
  wait_for_previous_kernel();
  if (column < p.columns) {
    const bool is_aligned = rows_are_aligned(p.moe.x.data, p.moe.x.stride);
    float sum[kRouteRows] = {};
    for (int from = 0; from < k; from += DenseStretch::kValues) {
      if (from > 0) weights.load(weight, from, k);
#pragma unroll
      for (int r = 0; r < kRouteRows; ++r) {
        if (r < rows)
          dot_stretch(weights, p.moe.x.data, p.moe.x.f32 != 0, (first + r) * p.moe.x.stride, from, k, is_aligned,
                      sum[r]);
      }
    }
    float* logits = const_cast<float*>(p.moe.logits);
#pragma unroll
    for (int r = 0; r < kRouteRows; ++r) {
      if (r >= rows) continue;
      const float y = sum_of_warp(sum[r]);
      if (lane == 0) logits[static_cast<std::int64_t>(first + r) * p.moe.logits_stride + column] = y;
    }
  }
}

__global__ void __launch_bounds__(128) pick_rows(const __grid_constant__ MoeParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5));
  if (row < p.rows) pick_experts(p, row, p.top_k - 1, true);
}

/// Exclusive prefix sum over the block's threads; `total` gets the sum of all.
__device__ int exclusive_sum(int value, int* scratch, int* total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const int other = __shfl_up_sync(~0u, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = inclusive;
  __syncthreads();
  int before = 0, all = 0;
  for (int i = 0; i < kPlanThreads / 32; ++i) {
    if (i < warp) before += scratch[i];
    all += scratch[i];
  }
  *total = all;
  return before + inclusive - value;
}

__device__ __forceinline__ TrellisTask make_task(const ExpertMatrix& matrix, int k_units, int groups, int columns,
                                                 int x_width, int rows) {
  TrellisTask task;
  task.weights = matrix.weights;
  task.suh = matrix.suh;
  task.svh = matrix.svh;
  task.bias = matrix.bias;
  task.out_f32 = 1;
  task.k_units = k_units;
  task.column_groups = groups;
  task.columns = columns;
  task.out_stride = columns;
  task.x_width = x_width;
  task.rows = rows;
  return task;
}

/// Where the tasks of one expert (or of the shared one) go in a kind's tables.
struct Place {
  int index = 0, unit = 0;
};

/// Writes one chunk's tasks: `rows` rows of an expert from `from` on, the first of them at `first` in the order.
__device__ __forceinline__ void write_tasks(const MoeParams& p, int kind, const ExpertMatrices& expert, bool shared,
                                            int first, int from, int rows, Place gate_up, Place down) {
  const int width = shared ? p.shared_width : p.width, groups = shared ? p.groups_shared : p.groups_width,
            units = shared ? p.units_shared : p.units_width, place = first + from;
  const std::int64_t picks = static_cast<std::int64_t>(p.rows) * p.top_k;
  // Inside gate and up the shared expert's rows follow those of all picks.
  const std::int64_t inner = shared ? picks * p.width + static_cast<std::int64_t>(from) * p.shared_width
                                    : static_cast<std::int64_t>(place) * p.width;
  for (int side = 0; side < 2; ++side) {
    const ExpertMatrix& matrix = side == 0 ? expert.gate : expert.up;
    if (matrix.kind != kind) continue;
    TrellisTask task = make_task(matrix, p.units_hidden, groups, width, p.hidden, rows);
    task.x = p.x.data;
    task.x_stride = p.x.stride;
    if (shared) {
      task.x = p.x.f32 != 0 ? static_cast<const void*>(static_cast<const float*>(p.x.data) + from * p.x.stride)
                            : static_cast<const void*>(static_cast<const __half*>(p.x.data) + from * p.x.stride);
    } else {
      task.x_rows = p.place_row + place;
    }
    task.out = (side == 0 ? p.gate : p.up) + inner;
    task.first_unit = gate_up.unit;
    task.activations = p.activations + gate_up.index * p.gate_up_slab;
    task.row_scales = p.scales + gate_up.index * 64;
    p.gate_up[kind].tasks[gate_up.index++] = task;
    gate_up.unit += p.units_hidden * groups;
  }
  if (expert.down.kind == kind) {
    TrellisTask task = make_task(expert.down, units, p.groups_hidden, p.hidden, width, rows);
    task.x = p.up + inner;
    task.gate = p.gate + inner;
    task.x_stride = width;
    task.out = p.down + (shared ? picks + from : place) * p.hidden;
    task.first_unit = down.unit;
    task.activations = p.activations + down.index * p.down_slab;
    task.row_scales = p.scales + down.index * 64;
    p.downs[kind].tasks[down.index] = task;
  }
}

/// One block: counts, order, task tables. Every warp counts and then places the picks of its own stretch, after those
/// of the warps before it. Rows of one expert come in any order: a row's results do not depend on its place.
template <bool kPick>
__global__ void __launch_bounds__(kPlanThreads) plan(const __grid_constant__ MoeParams p) {
  constexpr int kWarps = kPlanThreads / 32;
  __shared__ int scratch[kWarps], first_place[kMaxExperts], first_chunk[kMaxExperts], expert_rows[kMaxExperts];
  __shared__ int first_gate_up[kMaxExperts], first_down[kMaxExperts];
  extern __shared__ int counts[];  // [kWarps][experts]
  allow_next_kernel();
  wait_for_previous_kernel();
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31, picks = p.rows * p.top_k;
  if constexpr (kPick) {
    for (int row = warp; row < p.rows; row += kWarps) pick_experts(p, row, p.top_k - 1, true);
  }
  for (int i = thread; i < kWarps * p.experts; i += kPlanThreads) counts[i] = 0;
  __syncthreads();
  const int stretch = (picks + kPlanThreads - 1) / kPlanThreads * 32, begin = warp * stretch,
            end = min(picks, begin + stretch);
  int* own = counts + warp * p.experts;
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) atomicAdd(own + p.pick_expert[i], 1);
  __syncthreads();
  int count = 0;
  if (thread < p.experts) {
    for (int w = 0; w < kWarps; ++w) {
      const int here = counts[w * p.experts + thread];
      counts[w * p.experts + thread] = count;
      count += here;
    }
  }
  int total;
  const int first = exclusive_sum(count, scratch, &total);
  if (thread < p.experts) first_place[thread] = first;
  __syncthreads();
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) {
    const int expert = p.pick_expert[i], place = first_place[expert] + atomicAdd(own + expert, 1);
    p.pick_place[i] = place;
    p.place_row[place] = i / p.top_k;
  }
  // Task tables: a thread a chunk, found by its number among all chunks.
  const int chunks = (count + p.chunk - 1) / p.chunk;
  int all_chunks;
  const int chunks_before = exclusive_sum(chunks, scratch, &all_chunks);
  if (thread < p.experts) {
    first_chunk[thread] = chunks_before;
    expert_rows[thread] = count;
  }
  const int shared_chunks = p.has_shared != 0 ? (p.rows + p.chunk - 1) / p.chunk : 0;
  for (int kind = 0; kind < p.kinds; ++kind) {
    int all_gate_up, all_down;
    const ExpertMatrices* mine = p.matrices + thread;
    const bool some = chunks > 0;
    const int gate_up = some ? chunks * ((mine->gate.kind == kind ? 1 : 0) + (mine->up.kind == kind ? 1 : 0)) : 0,
              down = some && mine->down.kind == kind ? chunks : 0;
    const int gate_up_before = exclusive_sum(gate_up, scratch, &all_gate_up),
              down_before = exclusive_sum(down, scratch, &all_down);
    if (thread < p.experts) {
      first_gate_up[thread] = gate_up_before;
      first_down[thread] = down_before;
    }
    __syncthreads();
    const ExpertMatrices& shared = p.matrices[p.experts];
    const int shared_sides =
        shared_chunks > 0 ? (shared.gate.kind == kind ? 1 : 0) + (shared.up.kind == kind ? 1 : 0) : 0;
    const bool shared_down = shared_chunks > 0 && shared.down.kind == kind;
    for (int i = thread; i < all_chunks + shared_chunks; i += kPlanThreads) {
      if (i >= all_chunks) {
        const int chunk = i - all_chunks, from = chunk * p.chunk;
        write_tasks(p, kind, shared, true, 0, from, min(p.chunk, p.rows - from),
                    {all_gate_up + chunk * shared_sides,
                     p.units_hidden * (all_gate_up * p.groups_width + chunk * shared_sides * p.groups_shared)},
                    {all_down + chunk, p.groups_hidden * (all_down * p.units_width + chunk * p.units_shared)});
        continue;
      }
      int low = 0, high = p.experts - 1;  // the last expert that starts at or before this chunk; empty ones before it
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (first_chunk[middle] <= i) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      const int chunk = i - first_chunk[low], from = chunk * p.chunk;
      const ExpertMatrices& expert = p.matrices[low];
      const int sides = (expert.gate.kind == kind ? 1 : 0) + (expert.up.kind == kind ? 1 : 0);
      const int gate_up_index = first_gate_up[low] + chunk * sides, down_index = first_down[low] + chunk;
      write_tasks(p, kind, expert, false, first_place[low], from, min(p.chunk, expert_rows[low] - from),
                  {gate_up_index, gate_up_index * p.units_hidden * p.groups_width},
                  {down_index, down_index * p.units_width * p.groups_hidden});
    }
    if (thread == 0) {
      const int shared_tasks = shared_chunks * shared_sides, shared_downs = shared_down ? shared_chunks : 0;
      p.gate_up[kind].count[0] = all_gate_up + shared_tasks;
      p.gate_up[kind].count[1] = p.units_hidden * (all_gate_up * p.groups_width + shared_tasks * p.groups_shared);
      p.downs[kind].count[0] = all_down + shared_downs;
      p.downs[kind].count[1] = p.groups_hidden * (all_down * p.units_width + shared_downs * p.units_shared);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(256) combine(const __grid_constant__ MoeParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = blockIdx.y, column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= p.hidden) return;
  const std::int64_t picks = static_cast<std::int64_t>(p.rows) * p.top_k;
  float sum = 0;
  for (int i = row * p.top_k; i < (row + 1) * p.top_k; ++i)
    sum += p.pick_weight[i] *
           p.down[static_cast<std::int64_t>(p.pick_place != nullptr ? p.pick_place[i] : i) * p.hidden + column];
  if (p.has_shared != 0) {
    const float weight =
        p.has_shared_gate != 0
            ? 1.0f / (1.0f + __expf(-p.logits[static_cast<std::int64_t>(row) * p.logits_stride + p.experts]))
            : 1.0f;
    sum += weight * p.down[(picks + row) * p.hidden + column];
  }
  if (p.out.f32 != 0) {
    static_cast<float*>(p.out.data)[row * p.out.stride + column] = sum;
  } else {
    static_cast<__half*>(p.out.data)[row * p.out.stride + column] = __float2half_rn(sum);
  }
}

/// One warp an output column of a task, kDenseRows rows at once.
template <int kDenseRows>
__global__ void __launch_bounds__(256) dense_tasks(const __grid_constant__ TaskList list) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int count = list.table == nullptr ? list.count : *list.table_count;
  if (static_cast<int>(blockIdx.y) >= count) return;
  const TrellisTask& task = (list.table == nullptr ? list.tasks : list.table)[blockIdx.y];
  const int column = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5)), lane = threadIdx.x & 31,
            first = blockIdx.z * kDenseRows, rows = min(kDenseRows, task.rows - first), k = task.x_width;
  if (column >= task.columns || rows <= 0) return;
  const __half* weight = reinterpret_cast<const __half*>(task.weights) + static_cast<std::int64_t>(column) * k;
  const bool is_aligned = rows_are_aligned(task.x, task.x_stride);
  float sum[kDenseRows] = {};
  if (task.gate == nullptr) {
    for (int from = 0; from < k; from += DenseStretch::kValues) {
      DenseStretch weights;
      weights.load(weight, from, k);
#pragma unroll
      for (int r = 0; r < kDenseRows; ++r) {
        if (r >= rows) continue;
        const std::int64_t row = task.x_rows != nullptr ? task.x_rows[first + r] : first + r;
        dot_stretch(weights, task.x, list.x_f32 != 0, row * task.x_stride, from, k, is_aligned, sum[r]);
      }
    }
  } else {
    for (int at = lane * 8; at < k; at += 256) {
      float w[8], v[8], gate[8];
      load_values(weight, false, 0, at, k, w);
#pragma unroll
      for (int r = 0; r < kDenseRows; ++r) {
        if (r >= rows) continue;
        const std::int64_t row = task.x_rows != nullptr ? task.x_rows[first + r] : first + r;
        load_values(task.x, list.x_f32 != 0, row * task.x_stride, at, k, v);
        load_values(task.gate, list.x_f32 != 0, row * task.x_stride, at, k, gate);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r] += w[i] * v[i] * activate(list.activation, gate[i]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kDenseRows; ++r) {
    if (r >= rows) continue;
    const float y = sum_of_warp(sum[r]) + (task.bias != nullptr ? __half2float(task.bias[column]) : 0.0f);
    if (lane != 0) continue;
    const std::int64_t at = (first + r) * task.out_stride + column;
    if (task.out_f32 != 0) {
      static_cast<float*>(task.out)[at] = y;
    } else {
      static_cast<__half*>(task.out)[at] = __float2half_rn(y);
    }
  }
}

}  // namespace

void launch_route(const LaunchContext& context, const MoeParams& params, const __half* weight) {
  const int columns = params.experts + params.has_shared_gate;
  launch(context, route,
         dim3((static_cast<unsigned>(columns) + 7) / 8,
              (static_cast<unsigned>(params.rows) + kRouteRows - 1) / kRouteRows),
         256, 0, RouteParams{params, weight, columns});
}

void launch_pick(const LaunchContext& context, const MoeParams& params) {
  launch(context, pick_rows, dim3((static_cast<unsigned>(params.rows) + 3) / 4), 128, 0, params);
}

void launch_plan(const LaunchContext& context, const MoeParams& params) {
  const std::size_t shared =
      static_cast<std::size_t>(kPlanThreads / 32) * static_cast<std::size_t>(params.experts) * sizeof(int);
  if (params.rows <= 32) return launch(context, plan<true>, dim3(1), kPlanThreads, shared, params);
  launch_pick(context, params);
  launch(context, plan<false>, dim3(1), kPlanThreads, shared, params);
}

void launch_combine(const LaunchContext& context, const MoeParams& params) {
  launch(context, combine, dim3((static_cast<unsigned>(params.hidden) + 255) / 256, static_cast<unsigned>(params.rows)),
         256, 0, params);
}

void launch_dense_tasks(const LaunchContext& context, const TaskList& tasks, int columns) {
  // Every row by itself, where that fills the device no more than once; otherwise rows share the weights' way.
  const auto grid = [&](int rows) {
    return dim3((static_cast<unsigned>(columns) + 7) / 8, static_cast<unsigned>(tasks.count),
                static_cast<unsigned>((tasks.max_rows + rows - 1) / rows));
  };
  const dim3 alone = grid(1);
  if (static_cast<int>(alone.x * alone.y * alone.z) <= 2 * context.multiprocessors)
    return launch(context, dense_tasks<1>, alone, 256, 0, tasks);
  launch(context, dense_tasks<4>, grid(4), 256, 0, tasks);
}

}  // namespace pergola::cuda
