#include <cfloat>

#include "backend/cuda/input_transform.cuh"
#include "backend/cuda/launch.h"

namespace pergola::cuda {

namespace {

constexpr int kValuesPerWarp = 512;

struct PrepareParams {
  TaskList list;
  int row_capacity = 0;  ///< rows_of(operand, blocks)
  int blocks = 0;
};

/// The block's task, by value: parameters read through a generic pointer would be slow. False where there is no such
/// task or row.
__device__ __forceinline__ bool task_of_block(const PrepareParams& params, TrellisTask& task) {
  if (params.list.table == nullptr) {
    task = params.list.tasks[blockIdx.y];
  } else {
    if (static_cast<int>(blockIdx.y) >= *params.list.table_count) return false;
    task = params.list.table[blockIdx.y];
  }
  return static_cast<int>(blockIdx.x) < task.rows;
}

__global__ void __launch_bounds__(128) prepare_halves(const __grid_constant__ PrepareParams params) {
  allow_next_kernel();
  wait_for_previous_kernel();
  TrellisTask task;
  if (!task_of_block(params, task)) return;
  const int lane = threadIdx.x & 31, sub = lane & 7;
  const int block = (blockIdx.z * 4 + (threadIdx.x >> 5)) * 4 + (lane >> 3);
  const bool inside = block * 2 < task.k_units;
  for (int row = blockIdx.x; row < task.rows; row += gridDim.x) {
    const std::int64_t source = task.x_rows != nullptr ? task.x_rows[row] : row;
    float low[8] = {}, high[8] = {};
    if (inside) load_input<true>(params.list, task, source, block, sub, low, high);
    hadamard_block(low, high, sub);
    if (!inside) continue;
    std::byte* to = task.activations + static_cast<std::int64_t>(block) * 2 * 1024 * params.blocks + (row >> 3) * 1024 +
                    (sub & 1) * 512 + ((row & 7) * 4 + (sub >> 1)) * 16;
    const uint4 a = half_fragments(sub, low), b = half_fragments(sub, high);
    *reinterpret_cast<uint4*>(to) = a;
    *reinterpret_cast<uint4*>(to + 1024 * params.blocks) = b;
  }
}

/// One block a row, because all of a row's values share one scale.
template <int kRounds>
__global__ void __launch_bounds__(1024) prepare_bytes(const __grid_constant__ PrepareParams params) {
  __shared__ float maxima[32];
  __shared__ int totals[32];
  allow_next_kernel();
  wait_for_previous_kernel();
  TrellisTask task;
  if (!task_of_block(params, task)) return;
  const int row = blockIdx.x, lane = threadIdx.x & 31, sub = lane & 7, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const std::int64_t source = task.x_rows != nullptr ? task.x_rows[row] : row;
  float low[kRounds][8], high[kRounds][8];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int block = (i * warps + warp) * 4 + (lane >> 3);
#pragma unroll
    for (int j = 0; j < 8; ++j) low[i][j] = high[i][j] = 0;
    if (block * 2 < task.k_units) {
      load_input<true>(params.list, task, source, block, sub, low[i], high[i]);
    }
  }
  float most = 0;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    hadamard_block(low[i], high[i], sub);
    most = fmaxf(most, largest(low[i], high[i]));
  }
  if (lane == 0) maxima[warp] = most;
  __syncthreads();
  most = lane < warps ? maxima[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  most = fmaxf(most, FLT_MIN);
  int total = 0;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int block = (i * warps + warp) * 4 + (lane >> 3);
    int a[8], b[8];
    total += to_integers(low[i], kIntegerRange / most, a) + to_integers(high[i], kIntegerRange / most, b);
    if (block * 2 < task.k_units) {
      const int column = 2 * row + (sub & 1);
      std::byte* to = task.activations + static_cast<std::int64_t>(block) * 2 * 512 * params.blocks +
                      (column >> 3) * 512 + ((column & 7) * 4 + (sub >> 1)) * 16;
      *reinterpret_cast<uint4*>(to) = byte_fragments(sub, a);
      *reinterpret_cast<uint4*>(to + 512 * params.blocks) = byte_fragments(sub, b);
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) total += __shfl_xor_sync(~0u, total, step);
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < warps; ++i) total += totals[i];
    task.row_scales[row] = most / kIntegerRange;
    task.row_scales[params.row_capacity + row] = static_cast<float>(total);
  }
}

}  // namespace

void launch_prepare(const LaunchContext& context, const TaskList& tasks, Operand operand, int blocks, std::int64_t k) {
  const PrepareParams params{tasks, rows_of(operand, blocks), blocks};
  const auto rows = static_cast<unsigned>(tasks.max_rows), matrices = static_cast<unsigned>(tasks.count);
  if (operand != Operand::bytes) {
    const auto parts = static_cast<unsigned>((k + 4 * kValuesPerWarp - 1) / (4 * kValuesPerWarp));
    // Where tasks are many, a block takes several rows.
    launch(context, prepare_halves, dim3(matrices > 64 ? (rows + 3) / 4 : rows, matrices, parts), 128, 0, params);
    return;
  }
  const std::int64_t warps = (k + kValuesPerWarp - 1) / kValuesPerWarp;
  const std::int64_t rounds = (warps + 31) / 32;
  const int threads = static_cast<int>((warps + rounds - 1) / rounds) * 32;
  if (rounds == 1) return launch(context, prepare_bytes<1>, dim3(rows, matrices), threads, 0, params);
  if (rounds == 2) return launch(context, prepare_bytes<2>, dim3(rows, matrices), threads, 0, params);
  launch(context, prepare_bytes<4>, dim3(rows, matrices), threads, 0, params);
}

}  // namespace pergola::cuda
