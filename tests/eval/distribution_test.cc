#include "eval/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pergola {
namespace {

TEST(Distribution, LogSumExpOfKnownValues) {
  const std::vector<float> even(4, 3.0f);
  EXPECT_NEAR(log_sum_exp(even), 3.0 + std::log(4.0), 1e-9);
  const std::vector<float> large{1000.0f, 1000.0f};  // exp(1000) is beyond a double
  EXPECT_NEAR(log_sum_exp(large), 1000.0 + std::log(2.0), 1e-9);
}

TEST(Distribution, LossOfAToken) {
  const std::vector<float> logits{0.0f, std::log(3.0f)};  // probabilities 1/4 and 3/4
  EXPECT_NEAR(token_loss(logits, 0), std::log(4.0), 1e-6);
  EXPECT_NEAR(token_loss(logits, 1), std::log(4.0 / 3.0), 1e-6);
}

TEST(Distribution, KlIsReferenceAgainstModel) {
  const std::vector<float> reference{0.0f, std::log(3.0f)};  // 1/4, 3/4
  const std::vector<float> model{0.0f, 0.0f};                // 1/2, 1/2
  const Divergence result = divergence(reference, model);
  EXPECT_NEAR(result.kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_FALSE(result.same_top);  // equal logits: the lowest token counts as top
  EXPECT_NEAR(divergence(model, reference).kl, 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75), 1e-7);
}

TEST(Distribution, ShiftOfAllLogitsChangesNothing) {
  const std::vector<float> a{0.5f, -1.25f, 2.0f};
  const std::vector<float> b{8.5f, 6.75f, 10.0f};
  const Divergence result = divergence(a, b);
  EXPECT_NEAR(result.kl, 0, 1e-15);
  EXPECT_TRUE(result.same_top);
}

}  // namespace
}  // namespace pergola
