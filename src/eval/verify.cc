#include "eval/verify.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "eval/distribution.h"
#include "eval/window.h"

namespace pergola {
namespace {

/// Logits of every position, one after the other.
std::vector<float> run(const std::filesystem::path& folder, const EngineOptions& options,
                       std::span<const std::int32_t> tokens, const Progress& progress) {
  Engine engine(open_model(Checkpoint(folder), options), progress);
  std::vector<float> all;
  all.reserve(tokens.size() * static_cast<std::size_t>(engine.info().vocab_size));
  run_window(engine, tokens,
             [&](std::int64_t, std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
  return all;
}

}  // namespace

ModelCheck check_model(const std::filesystem::path& folder, const EngineOptions& options, std::int64_t tokens,
                       const Progress& progress) {
  EngineOptions chosen = options;
  chosen.memory.context = tokens;
  chosen.memory.logit_rows = std::min(tokens, chosen.device.max_rows);
  EngineOptions exact = chosen;
  exact.backend = "reference";
  exact.shards.ranks = 1;
  exact.gpus.clear();

  const auto start = std::chrono::steady_clock::now();
  const std::int64_t vocab = Checkpoint(folder).config().text().require_int("vocab_size", 1, 1 << 30);
  std::mt19937_64 generator(7);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(vocab - 1));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  for (std::int32_t& token : ids) token = id(generator);

  const std::vector<float> expected = run(folder, exact, ids, progress);
  const std::vector<float> found = run(folder, chosen, ids, progress);
  std::vector<Divergence> positions;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto first = static_cast<std::size_t>(i * vocab);
    const auto count = static_cast<std::size_t>(vocab);
    positions.push_back(divergence(std::span(expected).subspan(first, count), std::span(found).subspan(first, count)));
  }
  ModelCheck check{.comparison = summarize(positions)};
  check.comparison.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool approximate = options.device.precision != Precision::exact;
  check.mean_tolerance = approximate ? 2e-3 : 5e-5;
  check.median_tolerance = approximate ? 3e-4 : 5e-6;
  return check;
}

}  // namespace pergola
