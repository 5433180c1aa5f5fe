#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/benchmark.h"
#include "eval/compare.h"
#include "eval/inspection.h"
#include "eval/perplexity.h"
#include "eval/token_file.h"
#include "eval/verify.h"
#include "eval/window.h"
#include "eval/write_logits.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TensorWriter;

const Progress kQuiet = [](const std::string&, std::uint64_t, std::uint64_t) {};

EngineOptions story_options(std::int64_t context, std::int64_t max_rows) {
  EngineOptions options{.backend = "reference", .memory = {.context = context, .logit_rows = max_rows}};
  options.device.max_rows = max_rows;
  return options;
}

Engine story(std::int64_t context, std::int64_t max_rows) {
  return Engine(open_model(Checkpoint(PERGOLA_SOURCE_DIR "/models/story"), story_options(context, max_rows)), {});
}

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((3 + i * 1013) % 4000));
  return tokens;
}

TEST(Window, EveryPositionInOrderWhateverTheChunk) {
  const std::vector<std::int32_t> tokens = some_tokens(11);
  std::vector<std::vector<float>> whole;
  Engine one = story(16, 16);
  run_window(one, tokens, [&](std::int64_t position, std::span<const float> logits) {
    EXPECT_EQ(position, static_cast<std::int64_t>(whole.size()));
    whole.emplace_back(logits.begin(), logits.end());
  });
  ASSERT_EQ(whole.size(), 11u);
  Engine chunked = story(16, 4);
  run_window(chunked, tokens, [&](std::int64_t position, std::span<const float> logits) {
    EXPECT_LT(divergence(whole[static_cast<std::size_t>(position)], logits).kl, 1e-8) << position;
  });
}

TEST(Perplexity, IsTheExponentOfTheMeanLossOfFreshWindows) {
  Engine engine = story(16, 16);
  const std::vector<std::int32_t> tokens = some_tokens(19);  // two windows of eight and a rest
  double sum = 0;
  for (std::size_t first : {std::size_t{0}, std::size_t{8}}) {
    run_window(engine, std::span(tokens).subspan(first, 8), [&](std::int64_t position, std::span<const float> logits) {
      if (position < 7) sum += token_loss(logits, tokens[first + static_cast<std::size_t>(position) + 1]);
    });
  }
  const PerplexityResult result = perplexity(engine, tokens, {.window = 8}, kQuiet);
  EXPECT_EQ(result.windows, 2);
  EXPECT_EQ(result.tokens_scored, 14);
  EXPECT_NEAR(result.perplexity, std::exp(sum / 14), 1e-6 * result.perplexity);
  EXPECT_EQ(perplexity(engine, tokens, {.window = 8, .max_windows = 1}, kQuiet).tokens_scored, 7);
  EXPECT_THROW(perplexity(engine, std::span(tokens).first(7), {.window = 8}, kQuiet), Error);
}

TEST(Perplexity, ProgressMayStopIt) {
  Engine engine = story(16, 16);
  struct Stop {};
  const Progress stop = [](const std::string&, std::uint64_t done, std::uint64_t) {
    if (done == 1) throw Stop();
  };
  EXPECT_THROW(perplexity(engine, some_tokens(32), {.window = 8}, stop), Stop);
  EXPECT_EQ(engine.pool().pages.in_use(), 0);
}

TEST(Compare, SummaryOfHandMadePositions) {
  std::vector<Divergence> positions(100, Divergence{0.01, true});
  positions[17] = {1.01, false};
  const Comparison result = summarize(positions);
  EXPECT_NEAR(result.kl_mean, 0.02, 1e-12);
  EXPECT_NEAR(result.kl_median, 0.01, 1e-12);
  EXPECT_NEAR(result.kl_p99, 0.02, 1e-12);  // the place 98.01 of 0..99 lies a hundredth above the 99th value
  EXPECT_NEAR(result.top1, 0.99, 1e-12);
  EXPECT_NEAR(result.kl_ci.high - result.kl_mean, 1.959964 * 0.01, 1e-6);
  EXPECT_EQ(result.positions, 100);
}

TEST(WriteLogits, RoundTripThroughTheFile) {
  const TempFolder folder;
  TensorWriter tokens;
  tokens.add("input_ids", DType::i64, {2, 3}, testing::bytes_of(std::vector<std::int64_t>{5, 6, 7, 8, 9, 10}));
  tokens.write(folder / "tokens");
  Engine engine = story(16, 16);
  write_logits(engine, TokenFile(folder / "tokens"), folder / "logits", kQuiet);
  const LogitsFile written(folder / "logits");
  EXPECT_EQ(written.sequences(), 2);
  EXPECT_EQ(written.positions(), 3);
  EXPECT_EQ(written.vocab_size(), 4096);
  EXPECT_EQ(written.ids(1)[0], 8);
  const Comparison same = compare(engine, written, kQuiet);
  EXPECT_EQ(same.positions, 6);
  EXPECT_LT(std::abs(same.kl_mean), 1e-12);
  EXPECT_EQ(same.top1, 1);
}

TEST(TokenFile, RefusesWhatIsNoWindowsOfIds) {
  const TempFolder folder;
  const auto reject = [&](DType dtype, std::vector<std::int64_t> shape, std::string bytes, const std::string& part) {
    TensorWriter writer;
    writer.add("input_ids", dtype, std::move(shape), std::move(bytes));
    writer.write(folder / "file");
    try {
      TokenFile file(folder / "file");
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  reject(DType::f32, {1, 1}, std::string(4, '\0'), "F32");
  reject(DType::i32, {1, 1, 1}, std::string(4, '\0'), "[1, 1, 1]");
  reject(DType::i32, {0}, "", "[0]");
  reject(DType::i32, {1}, testing::bytes_of(std::vector<std::int32_t>{-2}), "-2");
  reject(DType::i64, {1}, testing::bytes_of(std::vector<std::int64_t>{std::int64_t{1} << 40}), "1099511627776");
  TensorWriter other;
  other.add("tokens", DType::i32, {1}, std::string(4, '\0'));
  other.write(folder / "file");
  EXPECT_THROW(TokenFile(folder / "file"), Error);
}

TEST(Benchmark, CountsBytesAsTheShapesSay) {
  TokenBytes bytes{.dense = 1000, .experts = 800, .expert_count = 8, .top_k = 2, .state = 50, .kv_per_token = 3};
  EXPECT_DOUBLE_EQ(bytes.per_token(1, 9), 1000 + 200 + 100 + 30);
  // Two rows: 1 - (3/4)^2 = 7/16 of the experts.
  EXPECT_DOUBLE_EQ(bytes.per_token(2, 0), (1000 + 350 + 100 + 6) / 2.0);
  bytes.top_k = 0;
  EXPECT_DOUBLE_EQ(bytes.per_token(1, 0), 1000 + 100 + 3);
}

TEST(Benchmark, RunsEveryCombination) {
  const BenchmarkOptions options{.prompts = {4, 6}, .generate = 2, .depths = {0, 3}, .repeats = 2};
  EXPECT_EQ(benchmark_context(options), 9);
  Engine engine = story(benchmark_context(options), 16);
  const Benchmark result = run_benchmark(engine, options, kQuiet);
  std::vector<std::string> names;
  for (const BenchmarkCase& test : result.cases) {
    names.push_back(test.name());
    EXPECT_GT(test.tokens_per_second.median, 0);
    EXPECT_GT(test.bandwidth_share, 0);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("prefill 4", "prefill 6", "decode 2", "prefill 4 @ 3", "prefill 6 @ 3",
                                            "decode 2 @ 3"));
  // Of 12.4 MB the embedding (2.1 MB) and three quarters of the experts are not read for one token.
  EXPECT_GT(result.token_bytes.per_token(1, 0), 1e6);
  EXPECT_LT(result.token_bytes.per_token(1, 0), 12.4e6 + 2 * 3e6);
  EXPECT_EQ(result.token_bytes.expert_count, 16);
  EXPECT_EQ(result.token_bytes.top_k, 4);
}

TEST(Inspection, StoryHasNoProblems) {
  const Inspection inspection = inspect(PERGOLA_SOURCE_DIR "/models/story", story_options(0, 64));
  EXPECT_TRUE(inspection.problems.empty());
  EXPECT_NEAR(inspection.checkpoint.bits_per_weight, 4.0, 1e-9);
  ASSERT_TRUE(inspection.memory.has_value());
  EXPECT_EQ(inspection.memory->context, 8192);
}

TEST(Inspection, ProblemsInsteadOfFailure) {
  const TempFolder folder;
  testing::write_text(folder / "config.json", R"({"architectures": ["SomethingElse"]})");
  TensorWriter weights;
  weights.add_floats("x.weight", {2}, {1, 2});
  weights.write(folder / "model.safetensors");
  const Inspection inspection = inspect(folder.path(), story_options(0, 64));
  EXPECT_FALSE(inspection.model.has_value());
  std::string all;
  for (const std::string& problem : inspection.problems) all += problem + "\n";
  EXPECT_THAT(all, HasSubstr("SomethingElse"));
  EXPECT_THAT(all, HasSubstr("tokenizer.json"));
}

TEST(Verify, TheReferenceAgreesWithItself) {
  const ModelCheck check = check_model(PERGOLA_SOURCE_DIR "/models/story", story_options(0, 64), 12, kQuiet);
  EXPECT_TRUE(check.passed());
  EXPECT_EQ(check.comparison.positions, 12);
}

}  // namespace
}  // namespace pergola
