#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/summary.h"
#include "model/shard_cutter.h"

namespace pergola {

/// How a model is cut over ranks.
struct ShardReport {
  ShardPlan plan;
  std::vector<std::vector<TensorSlice>> slices;  ///< of each rank
  std::vector<std::uint64_t> bytes;              ///< of the weights that each rank binds, as stored
  std::vector<std::string> kinds;                ///< of layers: what mixes tokens, and "dense" or "experts"
  std::vector<int> legal;                        ///< numbers of ranks
};

/// What is in a model folder and what running it would take, from headers alone.
struct Inspection {
  CheckpointSummary checkpoint;
  std::optional<ModelInfo> model;     ///< absent when the model cannot be run
  std::optional<MemoryPlan> memory;   ///< for this machine and the options asked
  std::optional<ShardReport> shards;  ///< with several ranks
  std::vector<std::string> problems;  ///< why the model cannot be run here
  std::vector<std::string> notes;     ///< what else is odd about the checkpoint
};

/// Throws Error only for a folder whose files cannot be read at all.
Inspection inspect(const std::filesystem::path& folder, const EngineOptions& options);

}  // namespace pergola
