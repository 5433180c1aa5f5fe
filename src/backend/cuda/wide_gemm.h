#pragma once

#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

// Products of up to 64 rows a task on warpgroup tensor cores (compute capability 9.0): weights decoded once into
// registers, activations from shared memory. Made for many tasks, the experts of a prompt: a thread block has a task's
// group of 128 outputs to itself.

inline constexpr int kWideRows = 64;

/// Bytes of prepared activations per 64 inputs.
inline constexpr int kWideActivationBytes = 128 * kWideRows;

/// Prepares inputs for launch_wide_gemm: (activation(gate) *) x times suh, Hadamard transform, arrangement. `k` is the
/// inputs of the widest task.
void launch_prepare_wide(const LaunchContext& context, const TaskList& tasks, std::int64_t k);

/// Decodes, multiplies, transforms, scales, adds the bias and writes. `groups` is the column groups of the widest task.
void launch_wide_gemm(const LaunchContext& context, const TaskList& tasks, TrellisKind kind, int groups);

}  // namespace pergola::cuda
