// The parts of a mixture-of-experts layer that are not matrix products: choosing experts, ordering picks into tasks,
// the weighted sum.
#include <cfloat>

#include "backend/cuda/input_transform.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_kernels.h"

namespace pergola::cuda {

namespace {

constexpr int kPlanThreads = 1024;

/// A warp picks a row's experts.
__device__ void pick_experts(const MoeParams& p, int row) {
  const int lane = threadIdx.x & 31;
  const float* logits = p.logits + static_cast<std::int64_t>(row) * p.logits_stride;
  float value[kMaxExperts / 32];
#pragma unroll
  for (int i = 0; i < kMaxExperts / 32; ++i) value[i] = i * 32 + lane < p.experts ? logits[i * 32 + lane] : -FLT_MAX;
  float first = 0, total = 0, mine = 0;
  for (int rank = 0; rank < p.top_k; ++rank) {
    float best = -FLT_MAX;
    int expert = kMaxExperts;
#pragma unroll
    for (int i = 0; i < kMaxExperts / 32; ++i) {
      if (i * 32 < p.experts && value[i] > best) {
        best = value[i];
        expert = i * 32 + lane;
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
      const float other = __shfl_xor_sync(~0u, best, step);
      const int other_expert = __shfl_xor_sync(~0u, expert, step);
      if (other > best || (other == best && other_expert < expert)) {
        best = other;
        expert = other_expert;
      }
    }
    if (expert >= p.experts)
      expert = rank;  // only when logits are not numbers: any expert, so that nothing is read out of range
#pragma unroll
    for (int i = 0; i < kMaxExperts / 32; ++i) {
      if (i * 32 + lane == expert) value[i] = -FLT_MAX;
    }
    if (rank == 0) first = best;
    const float weight = __expf(best - first);
    total += weight;
    if (lane == rank) mine = weight;
    if (lane == 0) p.pick_expert[row * p.top_k + rank] = expert;
  }
  if (lane < p.top_k) p.pick_weight[row * p.top_k + lane] = mine / total;
}

__global__ void __launch_bounds__(128) pick_rows(const __grid_constant__ MoeParams p) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x * 4 + (threadIdx.x >> 5));
  if (row < p.rows) pick_experts(p, row);
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

__device__ TrellisTask make_task(const ExpertMatrix& matrix, int k_units, int groups, int columns, int x_width,
                                 int rows) {
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

/// Writes the tasks of rows [first, first + count) of the order for one expert.
__device__ void write_tasks(const MoeParams& p, int kind, const ExpertMatrices& expert, bool shared, int first,
                            int count, Place gate_up, Place down) {
  const int width = shared ? p.shared_width : p.width, groups = shared ? p.groups_shared : p.groups_width,
            units = shared ? p.units_shared : p.units_width;
  const std::int64_t picks = static_cast<std::int64_t>(p.rows) * p.top_k;
  for (int from = 0; from < count; from += p.chunk) {
    const int rows = min(p.chunk, count - from), place = first + from;
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
      p.downs[kind].tasks[down.index++] = task;
      down.unit += units * p.groups_hidden;
    }
  }
}

/// One block: counts, order, task tables. The order inside an expert is that of the picks.
template <bool kPick>
__global__ void __launch_bounds__(kPlanThreads) plan(const __grid_constant__ MoeParams p) {
  __shared__ int scratch[kPlanThreads / 32];
  extern __shared__ std::uint16_t ids[];
  allow_next_kernel();
  wait_for_previous_kernel();
  const int thread = threadIdx.x, picks = p.rows * p.top_k;
  if constexpr (kPick) {
    for (int row = thread >> 5; row < p.rows; row += kPlanThreads / 32) pick_experts(p, row);
    __syncthreads();
  }
  for (int i = thread; i < picks; i += kPlanThreads) ids[i] = static_cast<std::uint16_t>(p.pick_expert[i]);
  __syncthreads();
  int count = 0;
  if (thread < p.experts) {
    for (int i = 0; i < picks; ++i) count += ids[i] == thread ? 1 : 0;
  }
  int total;
  const int first = exclusive_sum(count, scratch, &total);
  if (count > 0) {
    int place = first;
    for (int i = 0; i < picks; ++i) {
      if (ids[i] != thread) continue;
      p.pick_place[i] = place;
      p.place_row[place++] = i / p.top_k;
    }
  }
  const int chunks = (count + p.chunk - 1) / p.chunk;
  for (int kind = 0; kind < p.kinds; ++kind) {
    int gate_up = 0, down = 0, all_gate_up, all_down;
    const ExpertMatrices* mine = p.matrices + thread;
    if (chunks > 0) {
      gate_up = chunks * ((mine->gate.kind == kind ? 1 : 0) + (mine->up.kind == kind ? 1 : 0));
      down = mine->down.kind == kind ? chunks : 0;
    }
    const int gate_up_index = exclusive_sum(gate_up, scratch, &all_gate_up),
              down_index = exclusive_sum(down, scratch, &all_down);
    if (gate_up + down > 0)
      write_tasks(p, kind, *mine, false, first, count, {gate_up_index, gate_up_index * p.units_hidden * p.groups_width},
                  {down_index, down_index * p.units_width * p.groups_hidden});
    if (thread == 0) {
      int shared_gate_up = 0, shared_down = 0;  // tasks
      if (p.has_shared != 0) {
        const ExpertMatrices& shared = p.matrices[p.experts];
        const int shared_chunks = (p.rows + p.chunk - 1) / p.chunk;
        shared_gate_up = shared_chunks * ((shared.gate.kind == kind ? 1 : 0) + (shared.up.kind == kind ? 1 : 0));
        shared_down = shared.down.kind == kind ? shared_chunks : 0;
        write_tasks(p, kind, shared, true, 0, p.rows, {all_gate_up, all_gate_up * p.units_hidden * p.groups_width},
                    {all_down, all_down * p.units_width * p.groups_hidden});
      }
      p.gate_up[kind].count[0] = all_gate_up + shared_gate_up;
      p.gate_up[kind].count[1] = p.units_hidden * (all_gate_up * p.groups_width + shared_gate_up * p.groups_shared);
      p.downs[kind].count[0] = all_down + shared_down;
      p.downs[kind].count[1] = p.groups_hidden * (all_down * p.units_width + shared_down * p.units_shared);
    }
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
    sum += p.pick_weight[i] * p.down[static_cast<std::int64_t>(p.pick_place[i]) * p.hidden + column];
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

/// One warp an output column of a task, eight rows at once.
__global__ void __launch_bounds__(256) dense_tasks(const __grid_constant__ TaskList list) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const int count = list.table == nullptr ? list.count : *list.table_count;
  if (static_cast<int>(blockIdx.y) >= count) return;
  const TrellisTask& task = (list.table == nullptr ? list.tasks : list.table)[blockIdx.y];
  const int column = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5)), lane = threadIdx.x & 31;
  if (column >= task.columns) return;
  const __half* weight =
      reinterpret_cast<const __half*>(task.weights) + static_cast<std::int64_t>(column) * task.x_width;
  for (int first = 0; first < task.rows; first += 8) {
    const int rows = min(8, task.rows - first);
    float sum[8] = {};
    for (int k = lane * 8; k < task.x_width; k += 256) {
      float w[8];
      load_values(weight, false, 0, k, task.x_width, w);
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        if (r >= rows) continue;
        const std::int64_t row = task.x_rows != nullptr ? task.x_rows[first + r] : first + r;
        float v[8];
        load_values(task.x, list.x_f32 != 0, row * task.x_stride, k, task.x_width, v);
        if (task.gate != nullptr) {
          float gate[8];
          load_values(task.gate, list.x_f32 != 0, row * task.x_stride, k, task.x_width, gate);
#pragma unroll
          for (int i = 0; i < 8; ++i) v[i] *= activate(list.activation, gate[i]);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r] += w[i] * v[i];
      }
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) sum[r] += __shfl_xor_sync(~0u, sum[r], step);
      if (lane == 0 && r < rows) {
        const float y = sum[r] + (task.bias != nullptr ? __half2float(task.bias[column]) : 0.0f);
        const std::int64_t at = (first + r) * task.out_stride + column;
        if (task.out_f32 != 0) {
          static_cast<float*>(task.out)[at] = y;
        } else {
          static_cast<__half*>(task.out)[at] = __float2half_rn(y);
        }
      }
    }
  }
}

}  // namespace

void launch_plan(const LaunchContext& context, const MoeParams& params) {
  const std::size_t shared =
      static_cast<std::size_t>(params.rows) * static_cast<std::size_t>(params.top_k) * sizeof(std::uint16_t);
  if (params.rows <= 32) return launch(context, plan<true>, dim3(1), kPlanThreads, shared, params);
  launch(context, pick_rows, dim3((static_cast<unsigned>(params.rows) + 3) / 4), 128, 0, params);
  launch(context, plan<false>, dim3(1), kPlanThreads, shared, params);
}

void launch_combine(const LaunchContext& context, const MoeParams& params) {
  launch(context, combine, dim3((static_cast<unsigned>(params.hidden) + 255) / 256, static_cast<unsigned>(params.rows)),
         256, 0, params);
}

void launch_dense_tasks(const LaunchContext& context, const TaskList& tasks, int columns) {
  launch(context, dense_tasks, dim3((static_cast<unsigned>(columns) + 7) / 8, static_cast<unsigned>(tasks.count)), 256,
         0, tasks);
}

}  // namespace pergola::cuda
