#include "engine/engine_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "support/tiny_engine.h"

namespace pergola {
namespace {

using testing::greedy_request;
using testing::TinyEngine;

constexpr MemoryOptions kMemory{.context = 512, .max_sequences = 2, .logit_rows = 2};

/// Tells how its request ended.
struct Promise final : RequestListener {
  bool on_token(const SampledToken&) override { return true; }
  void on_end(const RequestOutcome& outcome) override { ended.set_value(outcome.finish); }
  std::promise<FinishReason> ended;
};

std::vector<ServedRequest> requests(std::initializer_list<std::shared_ptr<Promise>> listeners, std::int64_t tokens) {
  std::vector<ServedRequest> list;
  for (const auto& listener : listeners) list.push_back(greedy_request({1, 2, 3}, tokens, listener));
  return list;
}

TEST(EngineLoop, RunsRequestsFromOtherThreads) {
  TinyEngine tiny(kMemory);
  EngineLoop loop(*tiny.engine, {}, 100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&loop] {
      for (int i = 0; i < 5; ++i) {
        const auto listener = std::make_shared<Promise>();
        ASSERT_EQ(loop.submit(requests({listener}, 10)).size(), 1u);
        EXPECT_EQ(listener->ended.get_future().get(), FinishReason::max_tokens);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The last listener hears of its end before the loop finds that there is nothing left to do.
  for (int i = 0; i < 1000 && loop.stalled_seconds() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(loop.stalled_seconds(), 0);
}

TEST(EngineLoop, QueueIsBoundedAndTakesAllOrNone) {
  TinyEngine tiny(kMemory);
  EngineLoop loop(*tiny.engine, {}, 3);
  const auto a = std::make_shared<Promise>();
  const auto b = std::make_shared<Promise>();
  const auto c = std::make_shared<Promise>();
  const auto d = std::make_shared<Promise>();
  EXPECT_TRUE(loop.submit(requests({a, b, c, d}, 5)).empty());
  EXPECT_EQ(loop.submit(requests({a, b, c}, 5)).size(), 3u);
  for (const auto& listener : {a, b, c}) EXPECT_EQ(listener->ended.get_future().get(), FinishReason::max_tokens);
}

TEST(EngineLoop, CancelEndsARunningRequest) {
  TinyEngine tiny(kMemory);
  EngineLoop loop(*tiny.engine, {}, 3);
  const auto listener = std::make_shared<Promise>();
  const std::vector<Ticket> tickets = loop.submit(requests({listener}, 0));
  loop.cancel(tickets[0]);
  EXPECT_EQ(listener->ended.get_future().get(), FinishReason::cancelled);
}

TEST(EngineLoop, StopLetsRunningRequestsEndAndTakesNoNewOnes) {
  TinyEngine tiny(kMemory);
  EngineLoop loop(*tiny.engine, {}, 10);
  const auto listener = std::make_shared<Promise>();
  ASSERT_EQ(loop.submit(requests({listener}, 50)).size(), 1u);
  loop.stop(std::chrono::seconds(60));
  EXPECT_EQ(listener->ended.get_future().get(), FinishReason::max_tokens);
  EXPECT_TRUE(loop.submit(requests({listener}, 5)).empty());
}

TEST(EngineLoop, StopWithoutGraceCancels) {
  TinyEngine tiny(kMemory);
  EngineLoop loop(*tiny.engine, {}, 10);
  const auto a = std::make_shared<Promise>();
  const auto b = std::make_shared<Promise>();
  const auto c = std::make_shared<Promise>();
  ASSERT_EQ(loop.submit(requests({a, b, c}, 0)).size(), 3u);
  loop.stop(std::chrono::seconds(0));
  for (const auto& listener : {a, b, c}) {
    EXPECT_EQ(listener->ended.get_future().get(), FinishReason::cancelled);
  }
}

}  // namespace
}  // namespace pergola
