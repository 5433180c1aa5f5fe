#include "engine/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/error.h"

namespace pergola {
namespace {

using ::testing::ElementsAre;

CachePool pool_of(std::int64_t pages, std::int64_t slots) {
  return {IndexPool(pages), IndexPool(slots), 4};
}

TEST(IndexPool, GivesEveryNumberOnceAndTakesThemBack) {
  IndexPool pool(5);
  std::set<std::int32_t> taken;
  while (pool.available() > 0) taken.insert(pool.take());
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(pool.in_use(), 5);
  pool.give_back(3);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_EQ(pool.take(), 3);
}

TEST(Sequence, TakesPagesAsItGrowsAndGivesThemBack) {
  CachePool pool = pool_of(3, 1);
  {
    Sequence sequence(pool, 12);
    EXPECT_EQ(pool.slots.in_use(), 1);
    EXPECT_TRUE(sequence.reserve(4));
    EXPECT_EQ(sequence.pages().size(), 1u);
    EXPECT_TRUE(sequence.reserve(5));
    EXPECT_EQ(sequence.pages().size(), 2u);
    EXPECT_TRUE(sequence.reserve(5));  // already there
    EXPECT_EQ(pool.pages.in_use(), 2);
  }
  EXPECT_EQ(pool.pages.in_use(), 0);
  EXPECT_EQ(pool.slots.in_use(), 0);
}

TEST(Sequence, ExactFitOfThePoolWorksAndOneMoreIsRefusedWhole) {
  CachePool pool = pool_of(3, 2);
  Sequence first(pool, 100);
  ASSERT_TRUE(first.reserve(8));
  Sequence second(pool, 100);
  EXPECT_FALSE(second.reserve(5));  // two pages wanted, one left: none is taken
  EXPECT_EQ(pool.pages.available(), 1);
  EXPECT_TRUE(second.reserve(4));
  EXPECT_EQ(pool.pages.available(), 0);
}

TEST(Sequence, NoSlotLeftIsAnError) {
  CachePool pool = pool_of(3, 1);
  const Sequence first(pool, 8);
  EXPECT_THROW(Sequence(pool, 8), Error);
}

TEST(Sequence, MovedSequenceOwnsItsCacheAlone) {
  CachePool pool = pool_of(3, 2);
  Sequence first(pool, 12);
  ASSERT_TRUE(first.reserve(12));
  {
    Sequence second(std::move(first));
    EXPECT_EQ(second.pages().size(), 3u);
    Sequence third(pool, 12);
    third = std::move(second);
    EXPECT_EQ(pool.slots.in_use(), 1);
  }
  EXPECT_EQ(pool.pages.in_use(), 0);
  EXPECT_EQ(pool.slots.in_use(), 0);
}

TEST(Sequence, ContextIsALimit) {
  CachePool pool = pool_of(3, 1);
  Sequence sequence(pool, 3);
  sequence.append(std::vector<std::int32_t>{1, 2, 3});
  EXPECT_EQ(sequence.pending(), 3);
  sequence.advance(2);
  EXPECT_EQ(sequence.computed(), 2);
  EXPECT_EQ(sequence.pending(), 1);
  EXPECT_THROW(sequence.append(4), Error);
  EXPECT_EQ(sequence.length(), 3);
}

}  // namespace
}  // namespace pergola
