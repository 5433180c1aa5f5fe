#include "eval/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "eval/distribution.h"
#include "eval/statistics.h"
#include "eval/window.h"

namespace pergola {

PerplexityResult perplexity(Engine& engine, std::span<const std::int32_t> tokens, const PerplexityOptions& options,
                            const Progress& progress) {
  const auto available = static_cast<std::int64_t>(tokens.size()) / options.window;
  if (available == 0)
    fail({}, "the text has {} tokens, fewer than one window of {} (--context)", tokens.size(), options.window);
  const std::int64_t windows = options.max_windows > 0 ? std::min(options.max_windows, available) : available;
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> losses;
  losses.reserve(static_cast<std::size_t>(windows * (options.window - 1)));
  for (std::int64_t i = 0; i < windows; ++i) {
    progress("windows", static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(windows));
    const auto window =
        tokens.subspan(static_cast<std::size_t>(i * options.window), static_cast<std::size_t>(options.window));
    run_window(engine, window, [&](std::int64_t position, std::span<const float> logits) {
      if (position + 1 == options.window) return;
      losses.push_back(token_loss(logits, window[static_cast<std::size_t>(position + 1)]));
      if (!std::isfinite(losses.back())) fail({}, "the logits of token {} of window {} are not finite", position, i);
    });
  }
  progress("windows", static_cast<std::uint64_t>(windows), static_cast<std::uint64_t>(windows));
  PerplexityResult result;
  result.perplexity = std::exp(mean(losses));
  result.standard_error = result.perplexity * standard_error(losses);
  result.tokens_scored = static_cast<std::int64_t>(losses.size());
  result.windows = windows;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace pergola
