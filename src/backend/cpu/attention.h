#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace pergola::cpu {

/// Work space that attention over such a layer needs.
WorkNeeds attention_needs(const Attention& layer);

/// Backend::attention over pages of f32, f16 or bf16, in fp32 (docs/numerics.md).
///
/// Keys are visited in blocks with a running maximum and sum (online softmax). The unit of work is a block of queries
/// that share a kv head: some rows of one sequence times query heads. Few queries read the cache where it lies; for
/// many queries keys are transposed and values converted once a block of keys. A sequence with few rows in the step has
/// its keys split over the team, and the parts are combined in order. How keys are split depends on the sequence alone,
/// so that results depend neither on the size of the team nor on the rest of the batch.
void attention(const Context& context, const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v,
               const KvLayer& cache, const Batch& batch, const Tensor& out);

}  // namespace pergola::cpu
