#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace pergola {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

/// Pages of four tokens.
class PrefixCacheTest : public ::testing::Test {
 protected:
  static Tokens tokens(std::int32_t first, std::size_t count) {
    Tokens list(count);
    std::iota(list.begin(), list.end(), first);
    return list;
  }

  /// As a sequence does that computed `list` and ended: its pages stay in the tree alone.
  std::optional<std::int32_t> remember(PrefixCache& cache, const Tokens& list) {
    Tokens pages;
    std::optional<std::int32_t> checkpoint;
    for (std::size_t end = 4; end <= list.size(); end += 4) {
      pages.push_back(pool_.pages.take());
      checkpoint = cache.insert(std::span(list).first(end), pages);
    }
    for (const std::int32_t page : pages) pool_.pages.give_back(page);
    return checkpoint;
  }

  CachePool pool_{IndexPool(8), IndexPool(1), 4};
};

TEST_F(PrefixCacheTest, FindsTheLongestBeginningThatLeavesAToken) {
  PrefixCache cache(pool_, 8, true);
  remember(cache, tokens(0, 8));
  EXPECT_EQ(cache.find(tokens(0, 9)).tokens, 8);
  EXPECT_EQ(cache.find(tokens(0, 8)).tokens, 4);  // all of it would leave nothing to compute
  EXPECT_EQ(cache.find(tokens(0, 4)).tokens, 0);
  EXPECT_EQ(cache.find(tokens(1, 9)).tokens, 0);
  Tokens other = tokens(0, 9);
  other[6] = 99;
  EXPECT_EQ(cache.find(other).tokens, 4);
}

TEST_F(PrefixCacheTest, PagesComeWithTheStateAtTheirEnd) {
  PrefixCache cache(pool_, 8, true);
  remember(cache, tokens(0, 8));
  const auto shorter = cache.find(tokens(0, 5));
  const auto longer = cache.find(tokens(0, 9));
  EXPECT_THAT(shorter.pages, ElementsAre(0));
  EXPECT_THAT(longer.pages, ElementsAre(0, 1));
  ASSERT_TRUE(shorter.checkpoint && longer.checkpoint);
  EXPECT_NE(*shorter.checkpoint, *longer.checkpoint);
}

TEST_F(PrefixCacheTest, WithoutStatesPagesAreEnough) {
  PrefixCache cache(pool_, 0, false);
  EXPECT_FALSE(remember(cache, tokens(0, 8)));
  const auto match = cache.find(tokens(0, 9));
  EXPECT_EQ(match.tokens, 8);
  EXPECT_FALSE(match.checkpoint);
}

TEST_F(PrefixCacheTest, NoPlaceForStatesMeansNothingIsKept) {
  PrefixCache cache(pool_, 0, true);
  remember(cache, tokens(0, 8));
  EXPECT_EQ(cache.pages(), 0);
  EXPECT_EQ(pool_.pages.in_use(), 0);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedStateMakesRoom) {
  PrefixCache cache(pool_, 2, true);
  remember(cache, tokens(0, 4));
  remember(cache, tokens(100, 4));
  EXPECT_EQ(cache.find(tokens(0, 5)).tokens, 4);
  remember(cache, tokens(200, 4));
  EXPECT_EQ(cache.find(tokens(0, 5)).tokens, 4);
  EXPECT_EQ(cache.find(tokens(100, 5)).tokens, 0);
  EXPECT_EQ(cache.find(tokens(200, 5)).tokens, 4);
  EXPECT_EQ(cache.pages(), 2);  // the page without its state is of no use
}

TEST_F(PrefixCacheTest, PagesWithoutStateStayWhileLongerOnesNeedThem) {
  PrefixCache cache(pool_, 1, true);
  remember(cache, tokens(0, 12));
  EXPECT_EQ(cache.pages(), 3);
  EXPECT_EQ(cache.find(tokens(0, 9)).tokens, 0);
  EXPECT_EQ(cache.find(tokens(0, 13)).tokens, 12);
}

TEST_F(PrefixCacheTest, EvictsLeavesFirstAndNeverWhatASequenceShares) {
  PrefixCache cache(pool_, 8, true);
  remember(cache, tokens(0, 8));
  remember(cache, tokens(100, 4));
  const auto used = cache.find(tokens(0, 5));
  pool_.pages.share(used.pages[0]);
  EXPECT_EQ(cache.evictable(), 2);
  EXPECT_EQ(cache.evict(5), 2);
  EXPECT_EQ(cache.evict(1), 0);
  EXPECT_EQ(cache.find(tokens(0, 9)).tokens, 4);
  pool_.pages.give_back(used.pages[0]);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(pool_.pages.in_use(), 0);
}

TEST_F(PrefixCacheTest, GivesItsPagesBackWhenItDies) {
  {
    PrefixCache cache(pool_, 8, true);
    remember(cache, tokens(0, 8));
    EXPECT_EQ(pool_.pages.in_use(), 2);
  }
  EXPECT_EQ(pool_.pages.in_use(), 0);
}

}  // namespace
}  // namespace pergola
