// Time to choose one token from the logits of a vocabulary of Qwen3.5's size.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/sampler.h"

namespace pergola {
namespace {

constexpr std::int64_t vocab_size = 248320;

void sample(benchmark::State& state, SamplingOptions options) {
  options.seed = 1;
  RandomStream random(2);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) {
    for (int i = 0; i < 12; ++i) logit += static_cast<float>(random.uniform() - 0.5) * 3.0f;
  }
  Sampler sampler(options, vocab_size);
  for (std::int32_t token = 0; token < 4000; ++token) sampler.accept(token);
  std::vector<float> copy(logits.size());
  for (auto _ : state) {
    copy = logits;
    benchmark::DoNotOptimize(sampler.sample(copy));
  }
}

BENCHMARK_CAPTURE(sample, greedy, {.temperature = 0.0})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, temperature, {.temperature = 0.7})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, top_k, {.temperature = 0.7, .top_k = 20})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, top_p, {.temperature = 0.7, .top_p = 0.95})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, min_p, {.temperature = 0.7, .min_p = 0.05})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, qwen, {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .presence_penalty = 1.5})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pergola

BENCHMARK_MAIN();
