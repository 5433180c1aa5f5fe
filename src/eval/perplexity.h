#pragma once

#include <cstdint>
#include <span>

#include "base/progress.h"
#include "engine/engine.h"

namespace pergola {

struct PerplexityOptions {
  std::int64_t window = 2048;    ///< tokens
  std::int64_t max_windows = 0;  ///< 0: as many as the text has
};

struct PerplexityResult {
  double perplexity = 0;
  double standard_error = 0;  ///< of the perplexity: the mean loss's standard error times the perplexity
  std::int64_t tokens_scored = 0;
  std::int64_t windows = 0;
  double seconds = 0;
};

/// exp of the mean loss over windows that do not overlap, each from a fresh state and scored on its
/// positions 1..window-1. A rest shorter than a window is left out. Throws Error when the text is shorter than one
/// window, and when a loss is not finite.
PerplexityResult perplexity(Engine& engine, std::span<const std::int32_t> tokens, const PerplexityOptions& options,
                            const Progress& progress);

}  // namespace pergola
