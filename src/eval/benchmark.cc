#include "eval/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>

#include "eval/streaming_read.h"
#include "model/architectures.h"

namespace pergola {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Endless random token ids; every id comes once before one comes again.
class RandomTokens {
 public:
  RandomTokens(std::int64_t vocab, std::uint64_t seed) : ids_(static_cast<std::size_t>(vocab)), generator_(seed) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  std::vector<std::int32_t> draw(std::int64_t count) {
    std::vector<std::int32_t> tokens;
    tokens.reserve(static_cast<std::size_t>(count));
    std::size_t next = ids_.size();
    while (static_cast<std::int64_t>(tokens.size()) < count) {
      if (next == ids_.size()) {
        std::shuffle(ids_.begin(), ids_.end(), generator_);
        next = 0;
      }
      tokens.push_back(ids_[next++]);
    }
    return tokens;
  }

 private:
  std::vector<std::int32_t> ids_;
  std::mt19937_64 generator_;
};

class Runner {
 public:
  Runner(Engine& engine, const BenchmarkOptions& options)
      : engine_(engine),
        tokens_(engine.info().vocab_size, options.seed),
        meter_(engine.device().threads),
        bytes_(count_token_bytes(read_blueprint(engine.checkpoint()), engine.model_plan())) {}

  /// Pages weights in and lets the processor reach its clock; not timed.
  void warm_up() {
    Sequence sequence = filled(std::min<std::int64_t>(engine_.memory().context - 1, 32));
    decode(sequence, 1);
  }

  BenchmarkCase run(BenchmarkCase::Kind kind, std::int64_t tokens, std::int64_t depth, int repeats,
                    const std::function<void()>& on_repeat) {
    std::vector<double> rates;
    std::vector<double> bandwidths;
    for (int i = 0; i < repeats; ++i) {
      on_repeat();
      bandwidths.push_back(meter_.measure(1).bytes_per_second.median);
      Sequence sequence = filled(depth);
      const double seconds =
          kind == BenchmarkCase::Kind::prefill ? prefill(sequence, tokens) : decode(sequence, tokens);
      rates.push_back(static_cast<double>(tokens) / seconds);
    }
    BenchmarkCase result{.kind = kind,
                         .tokens = tokens,
                         .depth = depth,
                         .tokens_per_second = measured(rates),
                         .bandwidth = measured(bandwidths)};
    result.bytes_per_token = kind == BenchmarkCase::Kind::prefill
                                 ? bytes_.per_token(std::min(tokens, engine_.max_rows()), depth)
                                 : bytes_.per_token(1, depth + tokens / 2);
    result.bandwidth_share = result.bytes_per_token * result.tokens_per_second.median / result.bandwidth.median;
    return result;
  }

  const TokenBytes& token_bytes() const { return bytes_; }

 private:
  /// A fresh sequence with `depth` random tokens computed.
  Sequence filled(std::int64_t depth) {
    Sequence sequence = engine_.start();
    if (depth > 0) prefill(sequence, depth);
    return sequence;
  }

  double prefill(Sequence& sequence, std::int64_t count) {
    sequence.append(tokens_.draw(count));
    const Clock::time_point start = Clock::now();
    engine_.prefill(sequence, never_);
    wait();
    return seconds_since(start);
  }

  double decode(Sequence& sequence, std::int64_t count) {
    const std::vector<std::int32_t> tokens = tokens_.draw(count);
    const Clock::time_point start = Clock::now();
    for (const std::int32_t token : tokens) {
      sequence.append(token);
      const StepPart part{&sequence, 1, 1};
      engine_.step({&part, 1});
      wait();
    }
    return seconds_since(start);
  }

  /// Fetches the logits, as whoever samples must.
  void wait() {
    logits_.resize(static_cast<std::size_t>(engine_.info().vocab_size));
    engine_.read_logits(0, logits_);
  }

  Engine& engine_;
  RandomTokens tokens_;
  StreamingReadMeter meter_;
  TokenBytes bytes_;
  std::vector<float> logits_;
  std::atomic<bool> never_{false};
};

}  // namespace

std::string BenchmarkCase::name() const {
  const std::string what = fmt::format("{} {}", kind == Kind::prefill ? "prefill" : "decode", tokens);
  return depth > 0 ? fmt::format("{} @ {}", what, depth) : what;
}

std::int64_t benchmark_context(const BenchmarkOptions& options) {
  std::int64_t longest = options.generate;
  for (const std::int64_t prompt : options.prompts) longest = std::max(longest, prompt);
  return longest + *std::max_element(options.depths.begin(), options.depths.end());
}

Benchmark run_benchmark(Engine& engine, const BenchmarkOptions& options, const Progress& progress) {
  Runner runner(engine, options);
  const std::size_t kinds = options.prompts.size() + (options.generate > 0 ? 1 : 0);
  const std::uint64_t total = options.depths.size() * kinds * static_cast<std::uint64_t>(options.repeats);
  std::uint64_t done = 0;
  const auto on_repeat = [&] { progress("measurements", done++, total); };

  Benchmark result{.streaming_isa = streaming_instruction_set(),
                   .threads = engine.device().threads,
                   .token_bytes = runner.token_bytes()};
  runner.warm_up();
  for (const std::int64_t depth : options.depths) {
    for (const std::int64_t prompt : options.prompts) {
      result.cases.push_back(runner.run(BenchmarkCase::Kind::prefill, prompt, depth, options.repeats, on_repeat));
    }
    if (options.generate > 0) {
      result.cases.push_back(
          runner.run(BenchmarkCase::Kind::decode, options.generate, depth, options.repeats, on_repeat));
    }
  }
  progress("measurements", total, total);
  return result;
}

}  // namespace pergola
