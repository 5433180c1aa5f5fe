#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/codebook_constants.h"

namespace pergola::cuda {

/// How a few-row product feeds the tensor cores.
enum class Operand : std::uint8_t {
  pairs,   ///< half_pair codebooks: the two halves of a weight are two neighbouring inputs with the same activation;
           ///< sums are exact, not rounded
  packed,  ///< exact binary16 weights, two to a register; any codebook
  bytes,   ///< byte_sum: the four product bytes against 16-bit activations that are split into two int8 columns; 4 rows
           ///< per 8 columns
};

/// Most rows that one task can have with `blocks` column blocks of 8.
constexpr int rows_of(Operand operand, int blocks) {
  return (operand == Operand::bytes ? 4 : 8) * blocks;
}

/// Bytes of prepared activations per 64 inputs.
constexpr int activation_bytes(Operand operand, int blocks) {
  return (operand == Operand::bytes ? 512 : 1024) * blocks;
}

/// One matrix times up to rows_of() rows. Lives in device memory or in a kernel's parameters.
struct TrellisTask {
  const std::byte* weights = nullptr;  ///< packed order (packed_layout.h)
  const __half* suh = nullptr;
  const __half* svh = nullptr;
  const __half* bias = nullptr;  ///< may be null
  const void* x =
      nullptr;  ///< rows of binary16 or fp32 (PrepareParams::x_f32), the logical width may be shorter than k
  std::int64_t x_stride = 0;             ///< elements
  const std::int32_t* x_rows = nullptr;  ///< row of x for each row of the task; null: row i is x's row i
  const void* gate = nullptr;  ///< if given, the input is activation(gate) * x: rows of the same type and stride as x
  std::byte* activations = nullptr;  ///< prepared: k_units blocks of activation_bytes(); not used by fused launches
  float* row_scales = nullptr;       ///< Operand::bytes: scale of each row, then the sum of its integers
  void* out = nullptr;
  std::int64_t out_stride = 0;  ///< elements
  std::int32_t out_f32 = 0;     ///< 1: fp32, 0: binary16
  std::int32_t x_width = 0;     ///< logical inputs; the rest of k is zero
  std::int32_t columns = 0;     ///< logical outputs
  std::int32_t rows = 0;
  std::int32_t k_units = 0;        ///< in_features / 64
  std::int32_t column_groups = 0;  ///< out_features / 128
  std::int32_t first_unit = 0;     ///< units of all tasks before this one in the launch
};

inline constexpr int kMaxInlineTasks = 6;
inline constexpr int kMaxFusedTasks = 4;  ///< tasks whose inputs one block can prepare itself
inline constexpr int kMaxFusedRows = 4;   ///< rows of such tasks

/// The tasks of one launch: a table in device memory that earlier kernels may have written, or a few by value.
struct TaskList {
  const TrellisTask* table = nullptr;         ///< null: `tasks`
  const std::int32_t* table_count = nullptr;  ///< of the table: tasks, then their units in all
  int count = 0;                              ///< of `tasks`, or the most that the table can hold
  int max_rows = 0;                           ///< most rows of a task
  int activation = 0;                         ///< of TrellisTask::gate: 0 SiLU, 1 GELU (tanh)
  int x_f32 = 0;                              ///< type of x: 1 fp32, 0 binary16
  TrellisTask tasks[kMaxInlineTasks];
};

/// Device memory that the products of one stream share.
struct PackedGemmScratch {
  static constexpr int kMaxBlocks = 1024;  ///< of a launch
  static constexpr std::size_t kPartialFloats = std::size_t{2} * kMaxBlocks * 32 * 128;
  float* partials = nullptr;     ///< kPartialFloats
  unsigned* arrivals = nullptr;  ///< kMaxBlocks counters, zero between launches
};

/// What a launch needs to know of the device.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  int shared_bytes = 0;           ///< most that a block may opt in to
  bool dependent_launch = false;  ///< programmatic dependent launch, clusters (compute capability 9.0 on)
  bool warpgroups = false;        ///< warpgroup matrix products (compute capability 9.0 only)
};

/// The matrices' kind: all tasks of a launch are of one kind.
struct TrellisKind {
  Codebook codebook = Codebook::three_inst;
  int bits = 0;
  bool operator==(const TrellisKind&) const = default;
};

/// Prepares the inputs of a launch_packed_gemm with the same operand and blocks: (activation(gate) *) x times suh,
/// Hadamard transform, arrangement.
void launch_prepare(const LaunchContext& context, const TaskList& tasks, Operand operand, int blocks, std::int64_t k);

/// Decodes, multiplies, adds the parts in fixed order, transforms, scales, adds the bias and writes.
///
/// With `fused_tasks` > 0 every block prepares the inputs it needs itself, in shared memory: one launch instead of two,
/// worth it for few rows. It is the most tasks that one block's share of the units can touch (tasks_per_block), and `k`
/// the inputs of the widest task.
void launch_packed_gemm(const LaunchContext& context, const TaskList& tasks, TrellisKind kind, Operand operand,
                        int blocks, const PackedGemmScratch& scratch, int fused_tasks = 0, std::int64_t k = 0);

/// Most consecutive tasks that one of `multiprocessors` equal shares of `total_units` can touch when no task is smaller
/// than `smallest_task` units.
int tasks_per_block(int multiprocessors, std::int64_t total_units, std::int64_t smallest_task, int tasks);

/// Whether launch_packed_gemm has a kernel for it and its shared memory fits.
bool packed_gemm_fits(int shared_bytes, TrellisKind kind, Operand operand, int blocks, int fused_tasks = 0,
                      int rows = 0, std::int64_t k = 0);

}  // namespace pergola::cuda
