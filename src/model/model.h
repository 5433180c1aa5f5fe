#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "base/progress.h"
#include "format/checkpoint.h"
#include "model/blueprint.h"
#include "model/head.h"
#include "model/language_model.h"
#include "model/layer.h"
#include "model/plan.h"
#include "model/shard_cutter.h"

namespace pergola {

/// A rank's place in a model that several compute together.
struct RankShare {
  const ShardPlan& plan;
  Communicator& communicator;
};

/// A model bound to a backend: weights, work space for steps of up to backend.max_rows() rows, and caches. One thread
/// at a time.
class Model final : public LanguageModel {
 public:
  /// Reads headers and configuration and adds up what the model needs, without reading weights. Throws Error as
  /// read_blueprint does.
  static ModelPlan plan(const Checkpoint& checkpoint, const Backend& backend);

  /// Binds every weight and allocates the work space. The backend outlives the model, and so does the checkpoint where
  /// the backend keeps views of it; else pages of the files are released as weights are bound. `progress` is told bytes
  /// bound of all. Throws Error as read_blueprint does, and when the device has too little memory.
  /// With `share` only this rank's slices are bound, `backend` is the rank's own, and every rank calls the other
  /// methods with the same arguments (tensors in its own memory; each has room for all logits).
  static std::unique_ptr<Model> load(const Checkpoint& checkpoint, Backend& backend, const Progress& progress = {},
                                     const RankShare* share = nullptr);

  const ModelInfo& info() const override { return info_; }
  const ModelPlan& plan() const { return plan_; }

  void allocate_caches(const CachePlan& plan) override;
  void reset_slot(std::int64_t slot) override;
  void copy_slot(const Tensor& from, std::int64_t to) override;
  void forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits) override;

 private:
  Model(const ModelBlueprint& blueprint, Backend& backend, const RankShare* share);
  void bind(const ModelBlueprint& blueprint, const Checkpoint& checkpoint, const RankShare* share,
            const Progress& progress);
  void add_over_ranks(const Tensor& delta);
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
  Communicator* communicator_ = nullptr;  ///< null: alone
  std::vector<ShardCutter> slices_;       ///< own the slices that the backend keeps views of
  std::vector<Layer> layers_;
  RmsNorm final_norm_;
  std::unique_ptr<Head> head_;
};

}  // namespace pergola
