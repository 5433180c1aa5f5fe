#pragma once

#include <cstdint>
#include <filesystem>

#include "base/progress.h"
#include "engine/engine.h"
#include "eval/compare.h"

namespace pergola {

/// A whole model on two backends.
struct ModelCheck {
  Comparison comparison;  ///< KL(reference backend || backend) after random tokens
  double mean_tolerance = 0;
  double median_tolerance = 0;

  bool passed() const { return comparison.kl_mean <= mean_tolerance && comparison.kl_median <= median_tolerance; }
};

/// Runs `tokens` random tokens through the model on the reference backend and on the one that `options` name, one after
/// the other, and compares the logits. Tolerances are those of docs/numerics.md for the precision asked.
ModelCheck check_model(const std::filesystem::path& folder, const EngineOptions& options, std::int64_t tokens,
                       const Progress& progress);

}  // namespace pergola
