#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "engine/batch_builder.h"
#include "engine/memory_plan.h"
#include "engine/sequence.h"
#include "engine/step_recordings.h"
#include "format/checkpoint.h"
#include "model/language_model.h"
#include "model/plan.h"
#include "model/shard_plan.h"

namespace pergola {

/// Everything that is chosen before a model is loaded.
struct EngineOptions {
  std::string backend = "cpu";
  BackendOptions device;
  MemoryOptions memory;
  std::uint64_t gpu_memory_bytes = 0;  ///< most of a GPU's memory that may be used; 0: what is free
  std::uint64_t host_reserve_bytes = std::uint64_t{2} << 30;  ///< left to the machine by a GPU that shares its memory
  bool record_steps = true;  ///< decode steps run as recordings where the backend can record
  ShardOptions shards;       ///< over how many ranks the model is cut
  std::vector<int> gpus;     ///< the GPU of each rank; empty: all on the first (or on no GPU at all)
};

/// A model folder that was opened and planned; no weight was read yet.
struct OpenedModel {
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  ModelInfo info;
  ModelPlan plan;
  MemoryPlan memory;
  bool record_steps = true;
  std::vector<std::unique_ptr<Backend>> other_ranks;  ///< of the ranks after the first; `backend` is the first's
  std::optional<ShardPlan> shards;                    ///< none: one rank
};

/// Opens the backend and plans memory. Throws Error for an unknown architecture, a missing tensor or an impossible
/// option; a plan that does not fit is only refused when an Engine is made of it.
OpenedModel open_model(Checkpoint checkpoint, const EngineOptions& options);

/// A loaded model with its caches: runs steps over sequences.
class Engine {
 public:
  /// Loads the weights, in a thread for each rank. Throws Error when the plan does not fit (require_fit).
  Engine(OpenedModel opened, const Progress& progress);

  const ModelInfo& info() const { return opened_.info; }
  const ModelPlan& model_plan() const { return opened_.plan; }
  const MemoryPlan& memory() const { return opened_.memory; }
  const DeviceInfo& device() const { return opened_.backend->info(); }
  const Checkpoint& checkpoint() const { return opened_.checkpoint; }
  const CachePool& pool() const { return pool_; }
  CachePool& pool() { return pool_; }
  std::int64_t max_rows() const { return limits_.rows; }

  /// A fresh sequence with a cleared slot. Throws Error when --max-sequences are running.
  Sequence start();

  /// Copies recurrent state between slots: those of sequences (Sequence::slot()) and, after them, memory().checkpoints
  /// more for whoever keeps states. Ordered with steps.
  void copy_state(std::int32_t from, std::int32_t to);

  /// Throws Error naming the first id that is not a row of the model's vocabulary.
  void check_ids(std::span<const std::int32_t> ids) const;

  /// Computes one step: the next rows of every part, which then count as computed. Throws Error when the pool has too
  /// few pages.
  void step(std::span<const StepPart> parts);

  /// Computes all pending tokens of a sequence in chunks of at most max_rows(); logits of the last one are row 0 of
  /// logits(). Returns early, with tokens still pending, once `cancelled` is set.
  void prefill(Sequence& sequence, const std::atomic<bool>& cancelled);

  /// Logits of row `row` (in order of the step's parts) of the last step. `to` has vocab_size elements.
  void read_logits(std::int64_t row, std::span<float> to) const;

 private:
  OpenedModel opened_;
  StepLimits limits_;
  std::unique_ptr<LanguageModel> model_;
  CachePool pool_;
  BatchBuilder builder_;
  std::unique_ptr<Buffer> slot_numbers_;  ///< i32: 0, 1, 2, ...: copies read the number of their source from here
  std::unique_ptr<Buffer> logits_buffer_;
  Tensor logits_;  ///< f32 [limits_.logit_rows, vocab_size]
  StepRecordings recordings_;
};

}  // namespace pergola
