#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/generate.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::atomic<bool> kRunning{false};

EngineOptions options(std::int64_t max_rows, const MemoryOptions& memory) {
  EngineOptions result{.backend = "reference", .memory = memory};
  result.device.max_rows = max_rows;
  return result;
}

Engine story(std::int64_t max_rows, const MemoryOptions& memory) {
  return Engine(open_model(Checkpoint(PERGOLA_SOURCE_DIR "/models/story"), options(max_rows, memory)), {});
}

std::vector<std::int32_t> some_tokens(std::int64_t count, std::int32_t seed = 1) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((seed + i * 977) % 4000));
  return tokens;
}

std::vector<float> logits_of(Engine& engine, std::int64_t row = 0) {
  std::vector<float> logits(static_cast<std::size_t>(engine.info().vocab_size));
  engine.read_logits(row, logits);
  return logits;
}

std::vector<float> logits_after(Engine& engine, Sequence& sequence) {
  engine.prefill(sequence, kRunning);
  return logits_of(engine);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// Logits lie within about +-15; fp32 sums in another order move them by a few 1e-5.
constexpr double kNoise = 1e-3;

TEST(Engine, ChunkedPrefillEqualsOneShot) {
  Engine whole = story(64, {.context = 512});
  Engine chunked = story(7, {.context = 512});
  Sequence a = whole.start();
  Sequence b = chunked.start();
  a.append(some_tokens(60));
  b.append(some_tokens(60));
  EXPECT_LT(distance(logits_after(whole, a), logits_after(chunked, b)), kNoise);
}

TEST(Engine, DecodeContinuesThePrefill) {
  Engine engine = story(64, {.context = 512, .max_sequences = 2});
  Sequence whole = engine.start();
  whole.append(some_tokens(24));
  const std::vector<float> expected = logits_after(engine, whole);

  Sequence stepwise = engine.start();
  const std::vector<std::int32_t> tokens = some_tokens(24);
  stepwise.append(std::span(tokens).first(16));
  engine.prefill(stepwise, kRunning);
  std::vector<float> found;
  for (const std::int32_t token : std::span(tokens).subspan(16)) {
    stepwise.append(token);
    found = logits_after(engine, stepwise);
  }
  EXPECT_LT(distance(found, expected), kNoise);
}

TEST(Engine, SequencesOfOneStepDoNotMix) {
  Engine engine = story(64, {.context = 512, .max_sequences = 3, .logit_rows = 3});
  std::vector<std::vector<float>> alone;
  const std::vector<std::int64_t> lengths{9, 1, 14};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Sequence sequence = engine.start();
    sequence.append(some_tokens(lengths[i], static_cast<std::int32_t>(i) + 5));
    alone.push_back(logits_after(engine, sequence));
  }
  std::vector<Sequence> together;
  std::vector<StepPart> parts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    together.push_back(engine.start());
    together.back().append(some_tokens(lengths[i], static_cast<std::int32_t>(i) + 5));
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) parts.push_back({&together[i], lengths[i], 1});
  engine.step(parts);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_LT(distance(logits_of(engine, static_cast<std::int64_t>(i)), alone[i]), kNoise) << "sequence " << i;
  }
}

TEST(Engine, PagesAndSlotAreAsNewAfterRelease) {
  // Room for one sequence of two pages: the second one gets the pages and the slot of the first.
  Engine engine = story(300, {.context = 512});
  std::vector<float> expected;
  {
    Sequence first = engine.start();
    first.append(some_tokens(20, 3));
    expected = logits_after(engine, first);
  }
  {
    Sequence other = engine.start();
    other.append(some_tokens(280, 11));
    logits_after(engine, other);
    EXPECT_EQ(engine.pool().pages.in_use(), 2);
  }
  EXPECT_EQ(engine.pool().pages.in_use(), 0);
  Sequence again = engine.start();
  again.append(some_tokens(20, 3));
  EXPECT_EQ(distance(logits_after(engine, again), expected), 0);
}

TEST(Engine, PoolThatFitsExactlyRunsFullAndOneMoreRowIsRefused) {
  // Of the reference backend a token takes 4 KiB: two attention layers, keys and values of 2 * 128 floats.
  constexpr std::uint64_t kPageBytes = 256 * 4096;
  Engine engine = story(300, {.context = 512, .max_sequences = 2, .kv_cache_bytes = 3 * kPageBytes});
  ASSERT_EQ(engine.pool().pages.size(), 3);
  Sequence first = engine.start();
  first.append(some_tokens(257));
  engine.prefill(first, kRunning);
  Sequence second = engine.start();
  second.append(some_tokens(256));
  engine.prefill(second, kRunning);
  EXPECT_EQ(engine.pool().pages.available(), 0);
  second.append(1);
  EXPECT_THROW(engine.prefill(second, kRunning), Error);
  first.append(some_tokens(255));  // fills its second page to the end
  engine.prefill(first, kRunning);
  EXPECT_EQ(first.computed(), 512);
}

TEST(Engine, PlanThatDoesNotFitIsRefusedBeforeLoading) {
  OpenedModel opened = open_model(Checkpoint(PERGOLA_SOURCE_DIR "/models/story"), options(64, {.context = 512}));
  opened.memory.available.bytes = 1000;
  EXPECT_THROW(
      Engine(std::move(opened), [](const std::string&, std::uint64_t, std::uint64_t) { FAIL() << "loading began"; }),
      Error);
}

TEST(Engine, CancelledPrefillStopsBetweenChunks) {
  Engine engine = story(8, {.context = 512});
  Sequence sequence = engine.start();
  sequence.append(some_tokens(20));
  const std::atomic<bool> cancelled{true};
  engine.prefill(sequence, cancelled);
  EXPECT_EQ(sequence.computed(), 0);
}

class Generate : public ::testing::Test {
 protected:
  Engine engine_ = story(64, {.context = 40});
  GenerationRequest request_{.prompt = some_tokens(12), .max_tokens = 6, .sampling = {.temperature = 0}};
  std::vector<std::int32_t> heard_;
  OnToken hear_ = [this](std::int32_t token) { heard_.push_back(token); };
};

TEST_F(Generate, GreedyIsRepeatableAndStreams) {
  const Generation first = generate(engine_, request_, hear_, kRunning);
  EXPECT_EQ(first.finish, FinishReason::max_tokens);
  EXPECT_EQ(first.tokens.size(), 6u);
  EXPECT_EQ(heard_, first.tokens);
  EXPECT_EQ(first.prompt_tokens, 12);
  EXPECT_EQ(first.decode_steps, 5);
  EXPECT_GT(first.prefill_rate(), 0);
  EXPECT_EQ(generate(engine_, request_, hear_, kRunning).tokens, first.tokens);
  EXPECT_EQ(engine_.pool().slots.in_use(), 0);
}

TEST_F(Generate, StopsAtAStopTokenWithoutWritingIt) {
  const Generation free = generate(engine_, request_, hear_, kRunning);
  heard_.clear();
  request_.stop_tokens = {free.tokens[3]};
  const Generation stopped = generate(engine_, request_, hear_, kRunning);
  EXPECT_EQ(stopped.finish, FinishReason::stop_token);
  const auto first_stop = std::find(free.tokens.begin(), free.tokens.end(), free.tokens[3]);
  EXPECT_EQ(stopped.tokens, std::vector<std::int32_t>(free.tokens.begin(), first_stop));
  EXPECT_EQ(heard_, stopped.tokens);
}

TEST_F(Generate, FillsTheContextToTheLastToken) {
  request_.max_tokens = 0;
  request_.prompt = some_tokens(36);
  const Generation result = generate(engine_, request_, hear_, kRunning);
  EXPECT_EQ(result.finish, FinishReason::context_full);
  EXPECT_EQ(result.tokens.size(), 5u);  // four more in the cache, and one that needs no place there
  request_.prompt = some_tokens(40);
  EXPECT_EQ(generate(engine_, request_, hear_, kRunning).tokens.size(), 1u);
}

TEST_F(Generate, PromptLongerThanTheContextIsRefusedWithTheNumbers) {
  request_.prompt = some_tokens(41);
  try {
    generate(engine_, request_, hear_, kRunning);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("41 tokens"), HasSubstr("context of 40"), HasSubstr("32768")));
  }
}

TEST_F(Generate, BadPromptsAreRefused) {
  request_.prompt = {};
  EXPECT_THROW(generate(engine_, request_, hear_, kRunning), Error);
  request_.prompt = {1, 4096};
  EXPECT_THROW(generate(engine_, request_, hear_, kRunning), Error);
  request_.prompt = {-1};
  EXPECT_THROW(generate(engine_, request_, hear_, kRunning), Error);
}

TEST_F(Generate, OneTokenPrompt) {
  request_.prompt = {17};
  EXPECT_EQ(generate(engine_, request_, hear_, kRunning).tokens.size(), 6u);
}

TEST_F(Generate, CancellationTakesEffectWithinOneStep) {
  std::atomic<bool> cancelled{false};
  const Generation result = generate(
      engine_, request_, [&](std::int32_t) { cancelled = true; }, cancelled);
  EXPECT_EQ(result.finish, FinishReason::cancelled);
  EXPECT_EQ(result.tokens.size(), 1u);
  EXPECT_EQ(engine_.pool().pages.in_use(), 0);
}

TEST_F(Generate, MaskedTokensAreNeverChosen) {
  const Generation free = generate(engine_, request_, hear_, kRunning);
  TokenMask mask(engine_.info().vocab_size);
  mask.forbid(free.tokens[0]);
  request_.mask = std::make_shared<const TokenMask>(mask);
  EXPECT_NE(generate(engine_, request_, hear_, kRunning).tokens[0], free.tokens[0]);
}

}  // namespace
}  // namespace pergola
