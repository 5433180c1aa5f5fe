#pragma once

#include <cstdint>
#include <span>

#include "backend/operations.h"
#include "base/thread_pool.h"

namespace pergola::reference {

/// One token's choice of an expert.
struct Pick {
  std::int32_t expert = 0;
  float weight = 0;
};

/// The `picks.size()` largest logits, largest first, equal ones by the lowest expert; weights are the softmax over
/// those logits (double, stored float). Equal to a softmax over all experts that is renormalised over the chosen.
void route(std::span<const float> logits, std::span<Pick> picks);

/// The same by the layer's RouterScore.
void route(const MoeView& view, std::span<const float> logits, std::span<Pick> picks);

/// out = the activation of gate and up, elementwise over n values. `out` may be one of the inputs.
void gated_activation(Activation activation, const float* gate, const float* up, std::int64_t n, float* out);

/// Backend::moe. Projections as apply_linear; an expert's output rows are stored as float and summed in double: routed
/// experts in the order of the token's picks, then the shared expert times sigmoid of its gate.
void moe(const MoeView& view, const Tensor& x, const Tensor& out, ThreadPool& pool);

}  // namespace pergola::reference
