#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "format/checkpoint.h"
#include "model/blueprint.h"
#include "model/head.h"
#include "model/layer.h"
#include "model/plan.h"

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

/// A model bound to a backend: weights, work space for steps of up to backend.max_rows() rows, and caches. One thread
/// at a time.
class Model {
 public:
  /// Reads headers and configuration and adds up what the model needs, without reading weights. Throws Error as
  /// read_blueprint does.
  static ModelPlan plan(const Checkpoint& checkpoint, const Backend& backend);

  /// Binds every weight and allocates the work space. The backend outlives the model, and so does the checkpoint where
  /// the backend keeps views of it; else pages of the files are released as weights are bound. `progress` is told bytes
  /// bound of all. Throws Error as read_blueprint does, and when the device has too little memory.
  static std::unique_ptr<Model> load(const Checkpoint& checkpoint, Backend& backend, const Progress& progress = {});

  const ModelInfo& info() const { return info_; }
  const ModelPlan& plan() const { return plan_; }

  /// Creates KV pages and recurrent states, zeroed; replaces earlier ones. Before the first step.
  void allocate_caches(const CachePlan& plan);

  /// Clears a slot's recurrent state for a fresh sequence. KV pages need no clearing: nothing is read that was not
  /// written.
  void reset_slot(std::int64_t slot);

  /// Makes the recurrent state of slot `to` that of slot `from` (i32 [1, 1] in device memory; another slot).
  void copy_slot(const Tensor& from, std::int64_t to);

  /// Runs one step: batch.rows (1 to max_rows) tokens through all layers, updating the caches. Then logits[i] (f32 [n,
  /// vocab_size]) of batch row logit_rows[i] (i32 [1, n], in device memory, n at most max_rows); with n = 0 (both
  /// tensors empty) the head is left out, as for a prefill chunk. Token ids were checked against vocab_size by the
  /// caller, positions and pages against the caches.
  void forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits);

 private:
  Model(const ModelBlueprint& blueprint, Backend& backend);
  void bind(const ModelBlueprint& blueprint, const Checkpoint& checkpoint, const Progress& progress);
  void allocate_activations();
  Tensor activation(DType type);

  Backend& backend_;
  ModelInfo info_;
  ModelPlan plan_;
  DeviceParameters parameters_;
  Scratch scratch_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Tensor residual_;  ///< f32 [max_rows, hidden]
  Tensor normed_;    ///< [max_rows, hidden]
  Tensor delta_;     ///< f32 [max_rows, hidden]: what a block adds to the residual
  std::unique_ptr<Embedding> embedding_;
  float embedding_scale_ = 1.0f;
  std::vector<Layer> layers_;
  RmsNorm final_norm_;
  std::unique_ptr<Head> head_;
};

}  // namespace pergola
