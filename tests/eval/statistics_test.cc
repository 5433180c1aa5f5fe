#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pergola {
namespace {

TEST(Statistics, HandComputed) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
  EXPECT_NEAR(standard_error(values), std::sqrt(5.0 / 3.0) / 2.0, 1e-12);
  EXPECT_DOUBLE_EQ(median(values), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_NEAR(quantile(values, 0.9), 3.7, 1e-12);
  const Interval interval = confidence_95(values);
  EXPECT_NEAR(interval.high - 2.5, 1.959964 * 0.6454972, 1e-6);
  EXPECT_NEAR(interval.low + interval.high, 5.0, 1e-12);
}

TEST(Statistics, OneValueHasNoSpread) {
  const std::vector<double> one{7};
  EXPECT_DOUBLE_EQ(standard_error(one), 0);
  EXPECT_DOUBLE_EQ(median(one), 7);
  EXPECT_DOUBLE_EQ(measured(one).low, 7);
}

}  // namespace
}  // namespace pergola
