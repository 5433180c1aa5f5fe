#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "support/tiny_engine.h"

namespace pergola {
namespace {

using testing::Collector;
using testing::greedy_request;
using testing::TinyEngine;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 97;
// Bytes of a page of the tiny model: one attention layer, keys and values of one head of 32 floats.
constexpr std::uint64_t kPageBytes = 256 * 2 * 32 * 4;

Tokens prompt_of(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(random() % kVocab));
  return tokens;
}

MemoryOptions memory_for(std::int64_t sequences, std::int64_t context, std::int64_t checkpoints) {
  return {.context = context, .max_sequences = sequences, .logit_rows = sequences, .checkpoints = checkpoints};
}

void run_all(Scheduler& scheduler) {
  for (int steps = 0; !scheduler.idle(); ++steps) {
    ASSERT_LT(steps, 100'000) << "it does not get on";
    scheduler.step();
  }
}

/// What a request yields when nothing else runs.
Tokens alone(Engine& engine, const Tokens& prompt, std::int64_t max_tokens) {
  const GenerationRequest request{.prompt = prompt, .max_tokens = max_tokens, .sampling = {.temperature = 0}};
  return generate(
             engine, request, [](std::int32_t) {}, std::atomic<bool>(false))
      .tokens;
}

TEST(Scheduler, ManyTogetherWriteWhatEachWritesAlone) {
  TinyEngine tiny(memory_for(4, 512, 0));
  std::vector<std::shared_ptr<Collector>> found;
  std::vector<Tokens> prompts;
  {
    Scheduler scheduler(*tiny.engine, {});
    for (std::uint32_t i = 0; i < 9; ++i) {
      prompts.push_back(prompt_of(1 + 37 * i % 150, i));
      found.push_back(std::make_shared<Collector>());
      scheduler.submit(i + 1, greedy_request(prompts.back(), 5 + 3 * i, found.back()));
    }
    run_all(scheduler);
    EXPECT_EQ(scheduler.stats().running, 0);
    EXPECT_EQ(scheduler.stats().pages_in_use, 0);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]->tokens, alone(*tiny.engine, prompts[i], 5 + 3 * static_cast<std::int64_t>(i))) << i;
    EXPECT_EQ(found[i]->ends, 1);
    EXPECT_EQ(found[i]->outcome.finish, FinishReason::max_tokens);
  }
}

TEST(Scheduler, KnownBeginningIsNotComputedAgainAndChangesNothing) {
  TinyEngine tiny(memory_for(2, 1024, 8));
  Scheduler scheduler(*tiny.engine, {});
  Tokens prompt = prompt_of(600, 1);
  const auto cold = std::make_shared<Collector>();
  scheduler.submit(1, greedy_request(prompt, 8, cold));
  run_all(scheduler);
  EXPECT_EQ(cold->outcome.cached_tokens, 0);
  const std::uint64_t computed = scheduler.stats().prompt_tokens;
  EXPECT_EQ(computed, 600u);

  const auto warm = std::make_shared<Collector>();
  scheduler.submit(2, greedy_request(prompt, 8, warm));
  prompt[550] += prompt[550] == 0 ? 1 : -1;
  const auto partly = std::make_shared<Collector>();
  scheduler.submit(3, greedy_request(prompt, 8, partly));
  run_all(scheduler);
  EXPECT_EQ(warm->outcome.cached_tokens, 512);
  EXPECT_EQ(warm->tokens, cold->tokens);
  EXPECT_EQ(partly->outcome.cached_tokens, 512);
  EXPECT_EQ(partly->tokens, alone(*tiny.engine, prompt, 8));
  EXPECT_EQ(scheduler.stats().prompt_tokens, computed + 88 + 88);
}

TEST(Scheduler, WhatBeginsAlikeAtTheSameTimeIsComputedOnce) {
  TinyEngine tiny(memory_for(4, 1024, 8));
  Tokens other = prompt_of(600, 1);
  other[300] += other[300] == 0 ? 1 : -1;
  std::vector<std::shared_ptr<Collector>> found;
  Scheduler scheduler(*tiny.engine, {});
  const auto submit = [&](const Tokens& prompt) {
    found.push_back(std::make_shared<Collector>());
    scheduler.submit(found.size(), greedy_request(prompt, 8, found.back()));
  };
  submit(prompt_of(600, 1));
  submit(prompt_of(600, 1));
  submit(other);  // shares one page only
  submit(prompt_of(40, 2));
  run_all(scheduler);
  EXPECT_EQ(scheduler.stats().prompt_tokens, 600u + 88u + 344u + 40u);
  EXPECT_EQ(found[0]->outcome.cached_tokens, 0);
  EXPECT_EQ(found[1]->outcome.cached_tokens, 512);
  EXPECT_EQ(found[2]->outcome.cached_tokens, 256);
  EXPECT_EQ(found[0]->tokens, found[1]->tokens);
  EXPECT_EQ(found[1]->tokens, alone(*tiny.engine, prompt_of(600, 1), 8));
  EXPECT_EQ(found[2]->tokens, alone(*tiny.engine, other, 8));
  EXPECT_EQ(found[3]->tokens, alone(*tiny.engine, prompt_of(40, 2), 8));
}

TEST(Scheduler, WhoWaitsForAnotherGoesOnWhenThatOneEnds) {
  TinyEngine tiny(memory_for(2, 1024, 8));
  Scheduler scheduler(*tiny.engine, {.prefill_chunk = 16});
  const auto first = std::make_shared<Collector>();
  const auto second = std::make_shared<Collector>();
  scheduler.submit(1, greedy_request(prompt_of(600, 1), 8, first));
  scheduler.submit(2, greedy_request(prompt_of(600, 1), 8, second));
  scheduler.step();
  scheduler.cancel(1);
  run_all(scheduler);
  EXPECT_EQ(first->outcome.finish, FinishReason::cancelled);
  EXPECT_EQ(second->tokens, alone(*tiny.engine, prompt_of(600, 1), 8));
}

TEST(Scheduler, NobodyWaitsWhereNothingCanBeKept) {
  TinyEngine tiny(memory_for(2, 1024, 0));  // a model with recurrent state and no place to keep it
  Scheduler scheduler(*tiny.engine, {});
  for (Ticket ticket = 1; ticket <= 2; ++ticket) {
    scheduler.submit(ticket, greedy_request(prompt_of(600, 1), 1, std::make_shared<Collector>()));
  }
  scheduler.step();
  EXPECT_EQ(scheduler.stats().prompt_tokens, 64u);
  run_all(scheduler);
  EXPECT_EQ(scheduler.stats().prompt_tokens, 1200u);
}

TEST(Scheduler, OutOfPagesTheYoungestWaitsAndNothingChanges) {
  MemoryOptions memory = memory_for(4, 1024, 4);
  memory.kv_cache_bytes = 4 * kPageBytes;  // one full context
  TinyEngine tiny(memory);
  ASSERT_EQ(tiny.engine->pool().pages.size(), 4);
  std::vector<std::shared_ptr<Collector>> found;
  {
    Scheduler scheduler(*tiny.engine, {});
    for (std::uint32_t i = 0; i < 4; ++i) {
      found.push_back(std::make_shared<Collector>());
      scheduler.submit(i + 1, greedy_request(prompt_of(200, i), 300, found.back()));
    }
    run_all(scheduler);
    EXPECT_GT(scheduler.stats().preemptions, 0u);
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i]->tokens, alone(*tiny.engine, prompt_of(200, i), 300)) << i;
    EXPECT_EQ(found[i]->outcome.prompt_tokens, 200);
    EXPECT_EQ(found[i]->outcome.answer_tokens, 300);
  }
  EXPECT_EQ(tiny.engine->pool().pages.in_use(), 0);
}

TEST(Scheduler, CachedPagesMakeRoomForNewRequests) {
  MemoryOptions memory = memory_for(2, 1024, 8);
  memory.kv_cache_bytes = 4 * kPageBytes;
  TinyEngine tiny(memory);
  Scheduler scheduler(*tiny.engine, {});
  for (std::uint32_t i = 0; i < 5; ++i) {
    const auto found = std::make_shared<Collector>();
    scheduler.submit(i + 1, greedy_request(prompt_of(1000, i), 24, found));
    run_all(scheduler);
    EXPECT_EQ(found->outcome.finish, FinishReason::max_tokens);
  }
  EXPECT_EQ(scheduler.stats().preemptions, 0u);
}

TEST(Scheduler, CancellingAtAnyTimeLeavesNothingBehind) {
  TinyEngine tiny(memory_for(3, 512, 0));
  Scheduler scheduler(*tiny.engine, {.prefill_chunk = 16});
  std::mt19937 random(7);
  std::vector<std::shared_ptr<Collector>> found;
  Ticket ticket = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Ticket> tickets;
    for (int i = 0; i < 5; ++i) {
      found.push_back(std::make_shared<Collector>());
      tickets.push_back(++ticket);
      scheduler.submit(ticket, greedy_request(prompt_of(1 + random() % 200, random()), 50, found.back()));
    }
    for (const Ticket victim : tickets) {
      for (auto steps = random() % 4; steps > 0; --steps) scheduler.step();
      scheduler.cancel(victim);
      const auto& listener = found[static_cast<std::size_t>(victim - 1)];
      const std::size_t before = listener->tokens.size();
      scheduler.step();
      EXPECT_EQ(listener->tokens.size(), before) << "a token after it was cancelled";
      EXPECT_EQ(listener->ends, 1);
    }
    scheduler.step();
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.stats().pages_in_use, 0);
    EXPECT_EQ(scheduler.stats().slots_in_use, 0);
  }
}

TEST(Scheduler, LongPromptsDoNotStallRunningStreams) {
  TinyEngine tiny(memory_for(2, 1024, 0));
  Scheduler scheduler(*tiny.engine, {.prefill_chunk = 16});
  const auto stream = std::make_shared<Collector>();
  scheduler.submit(1, greedy_request(prompt_of(5, 1), 100, stream));
  scheduler.step();
  const auto late = std::make_shared<Collector>();
  scheduler.submit(2, greedy_request(prompt_of(640, 2), 4, late));
  for (std::size_t step = 1; step <= 40; ++step) {
    scheduler.step();
    EXPECT_EQ(stream->tokens.size(), step + 1) << "the stream waited";
    EXPECT_EQ(late->tokens.empty(), step < 40);
  }
}

TEST(Scheduler, FirstComeFirstServed) {
  TinyEngine tiny(memory_for(1, 512, 0));
  Scheduler scheduler(*tiny.engine, {});
  std::vector<int> order;
  struct Noter final : RequestListener {
    Noter(std::vector<int>& to, int name) : order(to), number(name) {}
    bool on_token(const SampledToken&) override { return true; }
    void on_end(const RequestOutcome&) override { order.push_back(number); }
    std::vector<int>& order;
    int number;
  };
  for (int i = 0; i < 4; ++i) {
    scheduler.submit(static_cast<Ticket>(i), greedy_request(prompt_of(3, 1), 4 - i, std::make_shared<Noter>(order, i)));
  }
  run_all(scheduler);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3));
}

TEST(Scheduler, TheListenerMayEndIt) {
  TinyEngine tiny(memory_for(1, 512, 0));
  Scheduler scheduler(*tiny.engine, {});
  const auto found = std::make_shared<Collector>();
  found->enough = 3;
  scheduler.submit(1, greedy_request(prompt_of(3, 1), 10, found));
  run_all(scheduler);
  EXPECT_EQ(found->tokens.size(), 3u);
  EXPECT_EQ(found->outcome.finish, FinishReason::listener);
}

TEST(Scheduler, ContextFullEndsIt) {
  TinyEngine tiny(memory_for(1, 256, 0));
  Scheduler scheduler(*tiny.engine, {});
  const auto found = std::make_shared<Collector>();
  scheduler.submit(1, greedy_request(prompt_of(250, 1), 0, found));
  run_all(scheduler);
  EXPECT_EQ(found->tokens.size(), 7u);  // the last one needs no place
  EXPECT_EQ(found->outcome.finish, FinishReason::context_full);
}

TEST(Scheduler, StopTokenEndsItAndIsNoPartOfTheAnswer) {
  TinyEngine tiny(memory_for(1, 512, 0));
  const Tokens expected = alone(*tiny.engine, prompt_of(9, 4), 12);
  std::size_t first = 0;  // where the stop token comes for the first time
  while (expected[first] != expected[8]) ++first;
  Scheduler scheduler(*tiny.engine, {});
  const auto found = std::make_shared<Collector>();
  ServedRequest request = greedy_request(prompt_of(9, 4), 12, found);
  request.generation.stop_tokens = {expected[8]};
  scheduler.submit(1, std::move(request));
  run_all(scheduler);
  EXPECT_EQ(found->tokens, Tokens(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(first)));
  EXPECT_EQ(found->outcome.finish, FinishReason::stop_token);
}

TEST(Scheduler, LogprobsAreThoseOfTheModelAndSorted) {
  TinyEngine tiny(memory_for(1, 512, 0));
  Scheduler scheduler(*tiny.engine, {});
  const auto found = std::make_shared<Collector>();
  ServedRequest request = greedy_request(prompt_of(9, 4), 5, found);
  request.top_logprobs = kVocab;
  scheduler.submit(1, std::move(request));
  run_all(scheduler);
  ASSERT_EQ(found->top.size(), 5u);
  for (std::size_t i = 0; i < found->top.size(); ++i) {
    EXPECT_EQ(found->top[i][0].token, found->tokens[i]);
    EXPECT_EQ(found->top[i][0].logprob, found->logprobs[i]);
    double sum = 0;
    for (std::size_t k = 0; k < found->top[i].size(); ++k) {
      sum += std::exp(static_cast<double>(found->top[i][k].logprob));
      if (k > 0) {
        EXPECT_LE(found->top[i][k].logprob, found->top[i][k - 1].logprob);
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-4);
  }
}

TEST(Scheduler, RuleDecidesWhatMayCome) {
  struct OnlyOdd final : SamplingRule {
    void apply(std::span<float> logits) override {
      for (std::size_t i = 0; i < logits.size(); i += 2) logits[i] = -INFINITY;
    }
    void accept(std::int32_t token) override { EXPECT_EQ(token % 2, 1); }
  };
  TinyEngine tiny(memory_for(1, 512, 0));
  Scheduler scheduler(*tiny.engine, {});
  const auto found = std::make_shared<Collector>();
  ServedRequest request = greedy_request(prompt_of(9, 4), 20, found);
  request.rule = std::make_unique<OnlyOdd>();
  scheduler.submit(1, std::move(request));
  run_all(scheduler);
  EXPECT_EQ(found->tokens.size(), 20u);
  for (const std::int32_t token : found->tokens) EXPECT_EQ(token % 2, 1);
}

TEST(Scheduler, OneBadRequestDoesNotHurtOthers) {
  struct Nothing final : SamplingRule {
    void apply(std::span<float> logits) override { std::ranges::fill(logits, -INFINITY); }
    void accept(std::int32_t) override {}
  };
  TinyEngine tiny(memory_for(2, 512, 0));
  std::shared_ptr<Collector> bad = std::make_shared<Collector>();
  std::shared_ptr<Collector> good = std::make_shared<Collector>();
  {
    Scheduler scheduler(*tiny.engine, {});
    ServedRequest request = greedy_request(prompt_of(9, 4), 20, bad);
    request.rule = std::make_unique<Nothing>();
    scheduler.submit(1, std::move(request));
    scheduler.submit(2, greedy_request(prompt_of(9, 5), 20, good));
    run_all(scheduler);
  }
  EXPECT_EQ(bad->outcome.finish, FinishReason::failed);
  EXPECT_THAT(bad->outcome.error, ::testing::HasSubstr("no token is left"));
  EXPECT_EQ(good->tokens, alone(*tiny.engine, prompt_of(9, 5), 20));
}

TEST(Scheduler, AnyExceptionEndsOneRequestOnly) {
  struct Broken final : SamplingRule {
    void apply(std::span<float>) override { throw std::bad_alloc(); }
    void accept(std::int32_t) override {}
  };
  TinyEngine tiny(memory_for(2, 512, 0));
  const auto bad = std::make_shared<Collector>();
  const auto wrong = std::make_shared<Collector>();
  const auto good = std::make_shared<Collector>();
  Scheduler scheduler(*tiny.engine, {});
  ServedRequest request = greedy_request(prompt_of(9, 4), 20, bad);
  request.rule = std::make_unique<Broken>();
  scheduler.submit(1, std::move(request));
  ServedRequest impossible = greedy_request(prompt_of(9, 4), 20, wrong);
  impossible.generation.sampling.top_p = 7;  // nobody validated it
  scheduler.submit(2, std::move(impossible));
  scheduler.submit(3, greedy_request(prompt_of(9, 5), 20, good));
  run_all(scheduler);
  EXPECT_EQ(bad->outcome.finish, FinishReason::failed);
  EXPECT_EQ(bad->outcome.error, "out of memory");
  EXPECT_EQ(wrong->outcome.finish, FinishReason::failed);
  EXPECT_EQ(wrong->ends, 1);
  EXPECT_EQ(good->tokens, alone(*tiny.engine, prompt_of(9, 5), 20));
}

}  // namespace
}  // namespace pergola
