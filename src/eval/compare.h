#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/progress.h"
#include "engine/engine.h"
#include "eval/distribution.h"
#include "eval/statistics.h"
#include "format/logits_file.h"

namespace pergola {

/// How far a model's distributions are from reference logits, over all positions.
struct Comparison {
  double kl_mean = 0;  ///< KL(reference || model) in nats
  Interval kl_ci;      ///< of the mean, 95 %
  double kl_median = 0;
  double kl_p99 = 0;
  double top1 = 0;  ///< share of positions whose most likely token is the same
  std::int64_t positions = 0;
  double seconds = 0;
};

Comparison summarize(std::span<const Divergence> positions);

/// Runs the reference's tokens through the model, each row of them from a fresh state, and compares every position.
/// Throws Error when the file does not suit the model: another size of vocabulary.
Comparison compare(Engine& engine, const LogitsFile& reference, const Progress& progress);

}  // namespace pergola
