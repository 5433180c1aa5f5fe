#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "engine/engine.h"
#include "eval/statistics.h"
#include "eval/token_bytes.h"

namespace pergola {

struct BenchmarkOptions {
  std::vector<std::int64_t> prompts{512, 2048};  ///< lengths of prompts to prefill
  std::int64_t generate = 128;                   ///< tokens to decode; 0: no decode
  std::vector<std::int64_t> depths{0};           ///< tokens that are in the context before
  int repeats = 5;
  std::uint64_t seed = 1;
};

/// One line of a benchmark.
struct BenchmarkCase {
  enum class Kind : std::uint8_t { prefill, decode };
  Kind kind = Kind::prefill;
  std::int64_t tokens = 0;
  std::int64_t depth = 0;
  Measured tokens_per_second;
  double bytes_per_token = 0;
  Measured bandwidth;          ///< of streaming reads, measured right before each repeat, in bytes a second
  double bandwidth_share = 0;  ///< bytes_per_token * tokens_per_second / bandwidth, of the medians

  /// "prefill 512", "decode 128 @ 4096".
  std::string name() const;
};

struct Benchmark {
  std::string streaming_isa;  ///< instruction set of the bandwidth measurement
  int threads = 0;
  TokenBytes token_bytes;
  std::vector<BenchmarkCase> cases;
};

/// Tokens of context that the options need.
std::int64_t benchmark_context(const BenchmarkOptions& options);

/// Times prefill and decode. Every repeat runs a fresh sequence over tokens of its own, drawn at random without
/// repetition as long as the vocabulary lasts, so that nothing is warm but the weights. Between repeats the machine's
/// memory bandwidth is measured with the same number of threads.
Benchmark run_benchmark(Engine& engine, const BenchmarkOptions& options, const Progress& progress);

}  // namespace pergola
