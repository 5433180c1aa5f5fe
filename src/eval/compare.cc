#include "eval/compare.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "eval/window.h"

namespace pergola {

Comparison summarize(std::span<const Divergence> positions) {
  std::vector<double> kl;
  kl.reserve(positions.size());
  std::int64_t same = 0;
  for (const Divergence& position : positions) {
    kl.push_back(position.kl);
    same += position.same_top ? 1 : 0;
  }
  Comparison result;
  result.kl_mean = mean(kl);
  result.kl_ci = confidence_95(kl);
  result.kl_median = median(kl);
  result.kl_p99 = quantile(kl, 0.99);
  result.top1 = static_cast<double>(same) / static_cast<double>(kl.size());
  result.positions = static_cast<std::int64_t>(kl.size());
  return result;
}

Comparison compare(Engine& engine, const LogitsFile& reference, const Progress& progress) {
  if (reference.vocab_size() != engine.info().vocab_size) {
    fail({.tensor = "logits"}, "the reference has {} columns but the model's vocabulary has {}", reference.vocab_size(),
         engine.info().vocab_size);
  }
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t total = reference.sequences();
  std::vector<Divergence> positions;
  std::vector<float> expected(static_cast<std::size_t>(reference.vocab_size()));
  for (std::int64_t i = 0; i < total; ++i) {
    progress("windows", static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(total));
    run_window(engine, reference.ids(i), [&](std::int64_t position, std::span<const float> logits) {
      reference.read(i, position, expected);
      positions.push_back(divergence(expected, logits));
      if (!std::isfinite(positions.back().kl))
        fail({}, "the logits of token {} of window {} are not finite", position, i);
    });
  }
  progress("windows", static_cast<std::uint64_t>(total), static_cast<std::uint64_t>(total));
  Comparison result = summarize(positions);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace pergola
