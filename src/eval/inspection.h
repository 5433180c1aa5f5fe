#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/summary.h"

namespace pergola {

/// What is in a model folder and what running it would take, from headers alone.
struct Inspection {
  CheckpointSummary checkpoint;
  std::optional<ModelInfo> model;     ///< absent when the model cannot be run
  std::optional<MemoryPlan> memory;   ///< for this machine and the options asked
  std::vector<std::string> problems;  ///< why the model cannot be run here
  std::vector<std::string> notes;     ///< what else is odd about the checkpoint
};

/// Throws Error only for a folder whose files cannot be read at all.
Inspection inspect(const std::filesystem::path& folder, const EngineOptions& options);

}  // namespace pergola
