#pragma once

#include <cstdint>
#include <string>

#include "backend/batch.h"
#include "model/block.h"

namespace pergola {

/// What a model is.
struct ModelInfo {
  std::string architecture;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t max_positions = 0;   ///< longest sequence that the model was made for
  bool long_rope_left_out = false;  ///< as ModelBlueprint
};

/// A loaded model that computes steps: on one device, or cut over several ranks. One thread at a time.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const ModelInfo& info() const = 0;

  /// Creates KV pages and recurrent states, zeroed; replaces earlier ones. Before the first step.
  virtual void allocate_caches(const CachePlan& plan) = 0;

  /// Clears a slot's recurrent state for a fresh sequence. KV pages need no clearing: nothing is read that was not
  /// written.
  virtual void reset_slot(std::int64_t slot) = 0;

  /// Makes the recurrent state of slot `to` that of slot `from` (i32 [1, 1] in device memory; another slot).
  virtual void copy_slot(const Tensor& from, std::int64_t to) = 0;

  /// Runs one step: batch.rows (1 to max_rows) tokens through all layers, updating the caches. Then logits[i] (f32 [n,
  /// vocab_size]) of batch row logit_rows[i] (i32 [1, n], in device memory, n at most max_rows); with n = 0 (both
  /// tensors empty) the head is left out, as for a prefill chunk. Token ids were checked against vocab_size by the
  /// caller, positions and pages against the caches.
  virtual void forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits) = 0;
};

}  // namespace pergola
