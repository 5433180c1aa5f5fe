#pragma once

#include <cstdint>

#include "model/blueprint.h"
#include "model/plan.h"

namespace pergola {

/// Bytes that a step has to read from memory, counted from shapes: packed weights as stored, recurrent state, keys and
/// values. The model of memory traffic that a roofline needs; activations and caches that fit a processor's cache are
/// left out.
struct TokenBytes {
  std::uint64_t dense = 0;    ///< projections, shared experts, routers, head, small weights: read by every step
  std::uint64_t experts = 0;  ///< of all routed experts
  std::int64_t expert_count = 0;
  int top_k = 0;            ///< experts of one token in one layer; 0 without experts
  std::uint64_t state = 0;  ///< recurrent state of one sequence, read and written
  std::uint64_t rings = 0;  ///< keys and values of layers with a window, read at most once a step
  std::uint64_t kv_per_token = 0;

  /// Bytes a token of a step of `rows` rows of one sequence, the first of them at position `depth`. Rows share weights;
  /// routed experts are counted as if every token chose at random: experts * (1 - (1 - top_k/experts)^rows) of them are
  /// read.
  double per_token(std::int64_t rows, std::int64_t depth) const;
};

TokenBytes count_token_bytes(const ModelBlueprint& model, const ModelPlan& plan);

}  // namespace pergola
