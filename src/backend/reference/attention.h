#pragma once

#include "backend/batch.h"
#include "backend/operations.h"
#include "base/thread_pool.h"

namespace pergola::reference {

/// Rotates one head in place. Angle of pair j: position * inv_freq[j], rounded to float; cos and sin of that float in
/// double, times `magnitude`. Half-split: pairs (j, j + dims/2); interleaved: (2j, 2j + 1). Values from `dims` on are
/// untouched.
void rotate(const Rope& rope, std::int64_t position, float* head);

/// Backend::attention. q and k heads are normed, rotated and stored as float; scores, softmax and the weighted sum are
/// double, over every token of the sequence (or of the window) up to the row's own. Query head h reads kv head h /
/// (heads / kv_heads). With `gated`, out *= sigmoid(gate). Works in place in q and k. The cache is f32.
void attention(const Attention& layer, const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& cache,
               const Batch& batch, const Tensor& out, ThreadPool& pool);

}  // namespace pergola::reference
