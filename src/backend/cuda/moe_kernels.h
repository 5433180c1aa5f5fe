#pragma once

#include "backend/cuda/elementwise.h"

namespace pergola::cuda {

/// One projection of an expert in device memory. `kind` is an index into the layer's list of kinds.
struct ExpertMatrix {
  const std::byte* weights = nullptr;
  const __half* suh = nullptr;
  const __half* svh = nullptr;
  const __half* bias = nullptr;
  std::int32_t kind = 0;
};

struct ExpertMatrices {
  ExpertMatrix gate, up, down;
};

inline constexpr int kMaxMoeKinds = 25;  ///< eight widths of three codebooks, and dense
inline constexpr int kMaxExperts = 1024;

/// A task table in device memory, one for every kind of matrix.
struct TaskTable {
  TrellisTask* tasks = nullptr;
  std::int32_t* count = nullptr;  ///< tasks, then their units in all
};

/// One MoE step. A pick is (row, rank); picks are ordered by expert, and an expert's picks are cut into tasks of up to
/// `chunk` rows.
struct MoeParams {
  int rows = 0, top_k = 0, experts = 0, hidden = 0, width = 0, shared_width = 0, kinds = 0, chunk = 0;
  int has_shared = 0, has_shared_gate = 0;
  MatrixView x, out;
  const ExpertMatrices* matrices = nullptr;  ///< [experts + 1]; the last is the shared expert
  const float* logits = nullptr;             ///< [rows, experts + has_shared_gate]
  int logits_stride = 0;
  std::int32_t* pick_expert = nullptr;  ///< [rows * top_k]
  float* pick_weight = nullptr;         ///< [rows * top_k]
  std::int32_t* pick_place = nullptr;   ///< [rows * top_k] place in the order; null for `combine`: its own number
  std::int32_t* place_row = nullptr;    ///< [rows * top_k] row of x of each place
  float* gate = nullptr;                ///< [rows * top_k, width], then [rows, shared_width]
  float* up = nullptr;
  float* down = nullptr;  ///< [rows * top_k + rows, hidden]
  TaskTable gate_up[kMaxMoeKinds], downs[kMaxMoeKinds];
  std::byte* activations = nullptr;  ///< slabs of prepared inputs, one a task; gate_up and down launches use it in turn
  float* scales = nullptr;           ///< 64 floats a task
  std::int64_t gate_up_slab = 0, down_slab = 0;
  int units_hidden = 0, groups_width = 0, units_width = 0,
      groups_hidden = 0;  ///< stored sizes in units of 64 inputs and groups of 128 outputs
  int units_shared = 0, groups_shared = 0;
};

/// Router logits of few rows. `weight` binary16 [experts + has_shared_gate, hidden].
void launch_route(const LaunchContext& context, const MoeParams& params, const __half* weight);

/// Picks each row's experts from its logits (pick_expert, pick_weight).
void launch_pick(const LaunchContext& context, const MoeParams& params);

/// Picks each row's experts: the top_k largest logits (ties: the lowest expert), softmax over those. Then orders picks
/// and writes the task tables.
void launch_plan(const LaunchContext& context, const MoeParams& params);

/// out[row] = sum of weight * down over the row's picks, plus the gated shared expert.
void launch_combine(const LaunchContext& context, const MoeParams& params);

/// Tasks whose weights are dense binary16 [columns, k]: y = (activation(gate) *) x W^T + bias.
void launch_dense_tasks(const LaunchContext& context, const TaskList& tasks, int columns);

}  // namespace pergola::cuda
