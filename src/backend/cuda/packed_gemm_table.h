#pragma once

#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

inline constexpr int kTaskCache = 24;  ///< most tasks that one block may touch

/// What a decode-once kernel gets besides its tasks.
struct PackedGemmParams {
  TaskList list;
  PackedGemmScratch scratch;
  CodebookConstants constants;
  int stages = 0;
  int fused_tasks = 0;  ///< tasks whose inputs fit `fused_bytes` of shared memory each; 0: inputs were prepared before
  int fused_task_bytes = 0;
};

/// A compiled kernel and its shared-memory needs.
struct PackedGemmKernel {
  void (*run)(PackedGemmParams) = nullptr;
  int threads = 0;
  int stage_bytes = 0;
  int sum_bytes = 0;
  int max_stages = 0;
};

/// Defined for K = 1..8, one translation unit each.
template <int K>
PackedGemmKernel packed_gemm_kernel_of(Family family, Operand operand, int blocks);

}  // namespace pergola::cuda
