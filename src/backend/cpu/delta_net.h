#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace pergola::cpu {

/// Work space that such a layer needs.
WorkNeeds delta_net_needs(const DeltaNet& layer);

/// Backend::delta_net in fp32 (docs/numerics.md). The unit of work is one key head of one sequence with its value heads
/// (or, for a large team, with one of them): convolution, norms and gates of some rows, the delta rule over them, the
/// gated norm. A step of one token reads and writes each state once; many rows keep a part of the state in the
/// first-level cache and pass over it row after row.
void delta_net(const Context& context, const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b,
               const Tensor& a, const DeltaNetState& state, const Batch& batch, const Tensor& out);

}  // namespace pergola::cpu
