#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pergola {
namespace {

TEST(ThreadPool, EveryIndexRunsOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> hits(round % 17);
      pool.parallel_for(static_cast<std::int64_t>(hits.size()), [&](std::int64_t index, int member) {
        ASSERT_LT(member, threads);
        hits[static_cast<std::size_t>(index)].fetch_add(1);
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, FirstExceptionReachesTheCaller) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(100,
                                 [](std::int64_t index, int) {
                                   if (index == 41) throw std::runtime_error("41");
                                 }),
               std::runtime_error);
  std::atomic<int> count{0};
  pool.parallel_for(10, [&](std::int64_t, int) { ++count; });
  EXPECT_EQ(count.load(), 10);
}

int processors_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST(ThreadPool, PinningDoesNotNarrowOtherPools) {
  const int before = ThreadPool::available_processors();
  {
    ThreadPool pinned(2, true);
    EXPECT_EQ(processors_of_this_thread(), 1);
    EXPECT_EQ(ThreadPool::available_processors(), before);
    ThreadPool other(2);
    std::atomic<int> seen{0};
    std::atomic<bool> helper_ran{false};
    other.parallel_for(2, [&](std::int64_t, int member) {
      if (member == 1) {
        seen = processors_of_this_thread();
        helper_ran = true;
      } else {
        for (int i = 0; i < 1000 && !helper_ran; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    ASSERT_TRUE(helper_ran);
    EXPECT_EQ(seen, before);
  }
  EXPECT_EQ(processors_of_this_thread(), before);
}

TEST(ThreadPool, IdlePoolUsesNoProcessorTime) {
  ThreadPool pool(4);
  pool.parallel_for(8, [](std::int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.03);
}

}  // namespace
}  // namespace pergola
