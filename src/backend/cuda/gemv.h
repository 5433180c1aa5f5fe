#pragma once

#include <cstdint>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/moe_kernels.h"

namespace pergola::cuda {

// Products of very few rows, made for latency: a cluster of up to eight blocks shares the inputs of one group of 128
// outputs, transforms its own inputs, and hands its part to the cluster's first block through distributed shared
// memory. One launch does a whole linear, or one half of a mixture of experts. Compute capability 9.0 on.

inline constexpr int kGemvThreads = 256;
inline constexpr int kGemvMaxSlots = 8;     ///< pieces of weights in flight
inline constexpr int kGemvMaxSegments = 8;  ///< matrices that one thread block may touch
inline constexpr int kMaxGemvMembers = 8;

/// The operand that a family's GEMV feeds to the tensor cores.
constexpr Operand gemv_operand(Family family) {
  return family == Family::byte_sum ? Operand::bytes : Operand::pairs;
}

/// How a launch is cut; chosen by plan_gemv.
struct GemvPlan {
  int cluster = 1;  ///< thread blocks that share one job's inputs
  int slots = 0;    ///< ring of weights, each of two blocks of 128 x 128
  int shared_bytes = 0;
  bool operator==(const GemvPlan&) const = default;
};

/// What a launch consists of: `jobs` groups of 128 outputs, each with `blocks` blocks of 128 inputs (of all its
/// matrices).
struct GemvWork {
  int jobs = 0;
  int blocks = 0;
  int blocks_per_segment = 0;  ///< of the smallest matrix of a job
  int most_bits = 0;
  int rows = 0;
  Family family = Family::half_pair;
  int inputs = 0;  ///< blocks of inputs that a thread block transforms; 0: its share of `blocks`
};

/// A launch with clusters of a given size; `slots` is 0 where it does not fit.
GemvPlan fit_gemv(const GemvWork& work, int cluster, int shared_bytes);

/// The cheapest cluster size by a model of the time, and what fits in shared memory. `slots` is 0 where nothing fits.
GemvPlan plan_gemv(const GemvWork& work, int multiprocessors, int shared_bytes);

/// Whether a GEMV launch is faster than packed_gemm's (measured on an H200: docs/performance.md).
bool gemv_pays(const GemvWork& work);

/// Most matrices that one thread block touches.
int gemv_segments(const GemvWork& work, int cluster);

/// Most rows of a GEMV launch of the family.
constexpr int gemv_most_rows(Family family) {
  return rows_of(gemv_operand(family), 2);
}

/// What every kind of launch needs.
struct GemvCommon {
  CodebookConstants constants;
  int blocks = 0;  ///< of 128 inputs, of one job
  int slots = 0;
  int block_bytes = 0;   ///< room for 128 x 128 weights of the widest K
  int local_blocks = 0;  ///< most blocks of inputs that one thread block transforms
  int segments = 0;      ///< most matrices of one thread block
  int max_rows = 0;
  int activation = 0;
  int x_f32 = 0;
};

/// One member of a group of linears.
struct GemvMember {
  const std::byte* weights = nullptr;
  const __half* suh = nullptr;
  const __half* svh = nullptr;
  const __half* bias = nullptr;
  void* out = nullptr;
  std::int64_t out_stride = 0;
  std::int32_t out_f32 = 0;
  std::int32_t columns = 0;
  std::int32_t first_job = 0;
  std::int32_t bits = 0;  ///< 0: dense binary16 [columns, x.columns]
};

/// A group of linears: jobs are the column groups of its members, one after the other.
struct GemvLinears {
  GemvCommon common;
  MatrixView x;
  int count = 0;
  int jobs = 0;
  GemvMember members[kMaxGemvMembers];
};

/// gate and up of every pick and of the shared expert (MoeParams::gate and up, in the order of picks).
struct GemvGateUp {
  GemvCommon common;
  MoeParams moe;
  std::int32_t bits[kMaxMoeKinds] = {};
  int shared_chunk = 0;  ///< rows of the shared expert in one job; with `share` also picks of one expert
  int share = 0;         ///< rows that picked the same expert share its decode; picks were made before (launch_pick)
  int jobs = 0;
};

inline constexpr int kMostSharedPicks = 256;  ///< of a launch with GemvGateUp::share: a thread a pick

/// down of every pick and of the shared expert, rows of one expert together: MoeParams::down in the order of picks,
/// then of rows. A job is an expert and `groups` column groups, whose inputs it transforms once.
struct GemvDownParts {
  GemvCommon common;
  MoeParams moe;
  std::int32_t bits[kMaxMoeKinds] = {};
  int shared_chunk = 0;  ///< rows of one job
  int groups = 0;        ///< of 128 outputs of one job
  int jobs = 0;
};

/// out[row] = sum over the row's picks of weight * down(activation(gate) * up), plus the shared expert.
struct GemvDown {
  GemvCommon common;
  MoeParams moe;
  std::int32_t bits[kMaxMoeKinds] = {};
  int jobs = 0;
};

void launch_gemv(const LaunchContext& context, GemvLinears linears, Family family, const GemvPlan& plan);
void launch_gemv(const LaunchContext& context, GemvGateUp gate_up, Family family, const GemvPlan& plan);
void launch_gemv(const LaunchContext& context, GemvDown down, Family family, const GemvPlan& plan);
void launch_gemv(const LaunchContext& context, GemvDownParts down, Family family, const GemvPlan& plan);

}  // namespace pergola::cuda
