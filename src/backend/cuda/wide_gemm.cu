#include "backend/cuda/wide_gemm.cuh"

#include "backend/cuda/input_transform.cuh"

namespace pergola::cuda {

namespace {

/// A warp takes a block of 128 inputs of four rows at a time, eight lanes a row.
__global__ void __launch_bounds__(128) prepare_wide(const __grid_constant__ TaskList list) {
  __shared__ TrellisTask task;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int index = blockIdx.y, lane = threadIdx.x & 31, sub = lane & 7;
  if (index >= (list.table == nullptr ? list.count : *list.table_count)) return;
  if (threadIdx.x < sizeof(TrellisTask) / 4) {
    const TrellisTask* from = list.table == nullptr ? list.tasks : list.table;
    reinterpret_cast<std::uint32_t*>(&task)[threadIdx.x] =
        reinterpret_cast<const std::uint32_t*>(from + index)[threadIdx.x];
  }
  __syncthreads();
  const int block = static_cast<int>(blockIdx.z * 4 + (threadIdx.x >> 5)), half = sub & 1, band = sub >> 1;
  if (block * 2 >= task.k_units) return;
  for (int first = blockIdx.x * 4; first < task.rows; first += gridDim.x * 4) {
    const int row = first + (lane >> 3);
    const bool inside = row < task.rows;
    float low[8] = {}, high[8] = {};
    if (inside) {
      const std::int64_t source = task.x_rows != nullptr ? task.x_rows[row] : row;
      load_input<true>(list, task, source, block, sub, low, high);
    }
    hadamard_block(low, high, sub);
    if (!inside) continue;
    // Pairs (2p, 2p + 1) of rows of the band's half are inputs 2 * band .. of product p's half.
    std::byte* to = task.activations + static_cast<std::int64_t>(block) * 2 * kWideActivationBytes +
                    half * (kWideRows * 16) + (row >> 3) * 128 + (row & 7) * 16 + band * 4;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      *reinterpret_cast<std::uint32_t*>(to + p * 2 * kWideRows * 16) = pack_half(low[2 * p], low[2 * p + 1]);
      *reinterpret_cast<std::uint32_t*>(to + kWideActivationBytes + p * 2 * kWideRows * 16) =
          pack_half(high[2 * p], high[2 * p + 1]);
    }
  }
}

}  // namespace

void launch_prepare_wide(const LaunchContext& context, const TaskList& tasks, std::int64_t k) {
  launch(context, prepare_wide,
         dim3(static_cast<unsigned>((tasks.max_rows + 15) / 16), static_cast<unsigned>(tasks.count),
              static_cast<unsigned>((k / 128 + 3) / 4)),
         128, 0, tasks);
}

void launch_wide_gemm(const LaunchContext& context, const TaskList& tasks, TrellisKind kind, int groups) {
  const WideParams params{tasks, constants_of(kind.codebook)};
  if (family_of(kind.codebook) == Family::byte_sum) return launch_wide_byte_sum(context, params, kind.bits, groups);
  launch_wide_half_pair(context, params, kind.bits, groups);
}

}  // namespace pergola::cuda
