#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/rank_team.h"

namespace pergola {

/// A model cut over several ranks of this process, each with a backend and a thread of its own. Tensors that the caller
/// gives and gets are those of the first backend.
class RankedModel final : public LanguageModel {
 public:
  /// A rank that waits for another longer than this gives up.
  static constexpr std::chrono::minutes kLimit{5};

  /// `backends` has plan.ranks entries, which outlive the model. Throws Error as Model::load, and when a rank fails.
  static std::unique_ptr<RankedModel> load(const Checkpoint& checkpoint, std::vector<Backend*> backends,
                                           const ShardPlan& plan, const Progress& progress = {},
                                           std::chrono::milliseconds limit = kLimit);

  const ModelInfo& info() const override { return ranks_.front().model->info(); }
  void allocate_caches(const CachePlan& plan) override;
  void reset_slot(std::int64_t slot) override;
  void copy_slot(const Tensor& from, std::int64_t to) override;
  void forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits) override;

  /// What all ranks bind in sum, or where every rank has a device of its own the most that one binds.
  static ModelPlan plan(const ModelBlueprint& model, const ShardPlan& shards, std::span<Backend* const> backends,
                        bool own_devices);

 private:
  /// What the first rank has of a step, in the memory of another rank.
  struct Mirror {
    std::unique_ptr<Buffer> step;  ///< i32
    std::unique_ptr<Buffer> logits;
    std::int64_t logit_rows = 0;
  };

  struct Rank {
    Backend* backend = nullptr;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Model> model;
    Mirror mirror;
  };

  RankedModel(std::vector<Backend*> backends, std::chrono::milliseconds limit);
  /// Calls work(rank, whether it is the first) in the thread of every rank.
  template <typename Work>
  void each(const Work& work);
  void forward_in(Rank& rank, const Batch& batch, const Tensor& logit_rows, const Tensor& logits);
  static Tensor mirror_logits(Rank& rank, const Tensor& logits);

  std::vector<Rank> ranks_;
  std::unique_ptr<RankTeam> team_;
};

}  // namespace pergola
