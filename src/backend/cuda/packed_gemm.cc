#include "backend/cuda/packed_gemm.h"

#include <algorithm>
#include <cassert>

#include "backend/cuda/launch.h"
#include "backend/cuda/packed_gemm_table.h"

namespace pergola::cuda {

namespace {

PackedGemmKernel kernel_of(TrellisKind kind, Operand operand, int blocks) {
  const Family family = family_of(kind.codebook);
  switch (kind.bits) {
    case 1:
      return packed_gemm_kernel_of<1>(family, operand, blocks);
    case 2:
      return packed_gemm_kernel_of<2>(family, operand, blocks);
    case 3:
      return packed_gemm_kernel_of<3>(family, operand, blocks);
    case 4:
      return packed_gemm_kernel_of<4>(family, operand, blocks);
    case 5:
      return packed_gemm_kernel_of<5>(family, operand, blocks);
    case 6:
      return packed_gemm_kernel_of<6>(family, operand, blocks);
    case 7:
      return packed_gemm_kernel_of<7>(family, operand, blocks);
    case 8:
      return packed_gemm_kernel_of<8>(family, operand, blocks);
    default:
      return {};
  }
}

/// Shared memory for the inputs of one task in a fused launch: 128 bytes per row and 64 inputs.
int fused_task_bytes(int rows, std::int64_t k) {
  return static_cast<int>(k / 64 * 128 * rows);
}

/// Stages that fit beside the sums; kernels keep less than four kilobytes for tasks, barriers and scales.
int stages_of(const PackedGemmKernel& kernel, int shared_bytes, int fused_bytes) {
  return std::min(kernel.max_stages, (shared_bytes - 4096 - kernel.sum_bytes - fused_bytes) / kernel.stage_bytes);
}

}  // namespace

int tasks_per_block(int multiprocessors, std::int64_t total_units, std::int64_t smallest_task, int tasks) {
  const std::int64_t share = std::max<std::int64_t>((total_units + multiprocessors - 1) / multiprocessors,
                                                    7);  // few units: at least four a block
  return static_cast<int>(std::min<std::int64_t>(tasks, 1 + (share + smallest_task - 2) / smallest_task));
}

bool packed_gemm_fits(int shared_bytes, TrellisKind kind, Operand operand, int blocks, int fused_tasks, int rows,
                      std::int64_t k) {
  const PackedGemmKernel kernel = kernel_of(kind, operand, blocks);
  if (kernel.run == nullptr || fused_tasks > kMaxFusedTasks ||
      (fused_tasks > 0 && (blocks != 1 || rows > kMaxFusedRows)))
    return false;
  return stages_of(kernel, shared_bytes, fused_tasks * fused_task_bytes(rows, k)) >= (fused_tasks > 0 ? 3 : 2);
}

void launch_packed_gemm(const LaunchContext& context, const TaskList& tasks, TrellisKind kind, Operand operand,
                        int blocks, const PackedGemmScratch& scratch, int fused_tasks, std::int64_t k) {
  const PackedGemmKernel kernel = kernel_of(kind, operand, blocks);
  assert(kernel.run != nullptr && tasks.max_rows <= rows_of(operand, blocks));
  PackedGemmParams params{tasks, scratch,     constants_of(kind.codebook),
                          0,     fused_tasks, fused_tasks > 0 ? fused_task_bytes(tasks.max_rows, k) : 0};
  const int fused_bytes = params.fused_tasks * params.fused_task_bytes;
  params.stages = stages_of(kernel, context.shared_bytes, fused_bytes);
  assert(params.stages >= 2);
  const std::size_t shared =
      static_cast<std::size_t>(params.stages) * kernel.stage_bytes + kernel.sum_bytes + fused_bytes;
  // More blocks than multiprocessors only where one block would touch more tasks than it can keep at hand.
  const int blocks_needed = std::max(context.multiprocessors, tasks.count / (kTaskCache - 4));
  launch(context, kernel.run, dim3(static_cast<unsigned>(std::min(blocks_needed, PackedGemmScratch::kMaxBlocks))),
         kernel.threads, shared, params);
}

}  // namespace pergola::cuda
