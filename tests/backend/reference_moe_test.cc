#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "backend/reference/moe.h"
#include "support/device_tensor.h"
#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using reference::Pick;
using testing::DeviceTensor;
using testing::OwnedTrellis;
using testing::random_normal;

std::vector<Pick> route(const std::vector<float>& logits, std::size_t top_k) {
  std::vector<Pick> picks(top_k);
  reference::route(logits, picks);
  return picks;
}

TEST(Router, BreaksTiesByTheLowestExpert) {
  const std::vector<Pick> picks = route({1, 3, 0, 3, 3, 1}, 4);
  const std::vector<std::int32_t> experts{picks[0].expert, picks[1].expert, picks[2].expert, picks[3].expert};
  EXPECT_EQ(experts, (std::vector<std::int32_t>{1, 3, 4, 0}));
  EXPECT_EQ(picks[0].weight, picks[2].weight);
}

TEST(Router, EqualsAFullSoftmaxThatIsRenormalised) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<float> logits = random_normal<float>(64, seed);
    for (float& logit : logits) logit *= 5;
    const std::vector<Pick> picks = route(logits, 8);
    std::vector<double> p;
    double kept = 0;
    for (const float logit : logits) p.push_back(std::exp(static_cast<double>(logit)));
    for (const Pick& pick : picks) kept += p[static_cast<std::size_t>(pick.expert)];
    for (std::size_t i = 0; i < picks.size(); ++i) {
      EXPECT_NEAR(picks[i].weight, p[static_cast<std::size_t>(picks[i].expert)] / kept, 1e-6);
      if (i > 0) {
        EXPECT_GE(picks[i - 1].weight, picks[i].weight);
      }
    }
    std::sort(p.rbegin(), p.rend());
    EXPECT_DOUBLE_EQ(kept, std::accumulate(p.begin(), p.begin() + 8, 0.0));
  }
}

TEST(Router, TakesExtremeLogits) {
  const std::vector<Pick> picks = route({-1e30f, 1e30f, 1e30f, 0}, 2);
  EXPECT_EQ(picks[0].weight, 0.5f);
  EXPECT_EQ(picks[1].weight, 0.5f);
}

/// A layer of 8 experts, every projection with its own K and codebook; widths 128 -> 90 (stored as 128) -> 128.
class ReferenceMoe : public ::testing::Test {
 protected:
  static constexpr std::int64_t kHidden = 128;
  static constexpr std::int64_t kWidth = 90;
  static constexpr int kExperts = 8;

  ReferenceMoe() {
    view_.name = "test";
    view_.hidden = kHidden;
    view_.top_k = 3;
    view_.router = {"router", kHidden, kExperts, dense(router_, kExperts), {}};
    trellises_.reserve(3 * (kExperts + 1));
    for (int e = 0; e < kExperts; ++e) view_.experts.push_back(expert());
    view_.shared = expert();
    view_.shared_gate = {"gate", kHidden, 1, dense(gate_, 1), {}};
  }

  static DenseView dense(const std::vector<float>& values, std::int64_t rows) {
    return {DType::f32, rows, kHidden, std::as_bytes(std::span(values))};
  }

  LinearView linear(std::int64_t in, std::int64_t out) {
    const auto n = static_cast<int>(trellises_.size());
    trellises_.push_back(
        testing::random_trellis(128, 128, 1 + n % 8, static_cast<Codebook>(n % 3), static_cast<std::uint32_t>(n)));
    for (Half& suh : trellises_.back().suh) suh = to_half(to_float(suh) * 4);
    return {"linear", in, out, trellises_.back().view(), {}};
  }

  MoeView::Expert expert() { return {linear(kHidden, kWidth), linear(kHidden, kWidth), linear(kWidth, kHidden)}; }

  std::vector<float> run(const MoeView& view, const std::vector<float>& x) {
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / kHidden;
    const DeviceTensor out(*backend_, rows, kHidden);
    backend_->moe(*backend_->bind_moe(view), DeviceTensor(*backend_, rows, kHidden, x), out);
    return out.values();
  }

  static std::vector<double> product(const LinearView& view, const std::vector<double>& x) {
    std::vector<double> y(static_cast<std::size_t>(view.out_features));
    linear_product(view, 1, x, y);
    return y;
  }

  static std::vector<double> apply(const MoeView::Expert& expert, const std::vector<double>& x) {
    std::vector<double> h = product(expert.gate, x);
    const std::vector<double> up = product(expert.up, x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
    return product(expert.down, h);
  }

  /// One token from the formula.
  std::vector<double> expected(const std::vector<double>& x) const {
    const std::vector<double> logits = product(view_.router, x);
    std::vector<double> out = apply(*view_.shared, x);
    const double gate = 1 / (1 + std::exp(-product(*view_.shared_gate, x)[0]));
    for (double& value : out) value *= gate;
    for (const Pick& pick : route({logits.begin(), logits.end()}, 3)) {
      const std::vector<double> y = apply(view_.experts[static_cast<std::size_t>(pick.expert)], x);
      for (std::size_t i = 0; i < y.size(); ++i) out[i] += pick.weight * y[i];
    }
    return out;
  }

  std::unique_ptr<Backend> backend_ = open_backend("reference", {.threads = 2});
  std::vector<float> router_ = random_normal<float>(kExperts * kHidden, 50);
  std::vector<float> gate_ = random_normal<float>(kHidden, 51);
  std::vector<OwnedTrellis> trellises_;
  MoeView view_;
};

TEST_F(ReferenceMoe, FollowsTheFormulaWithUnlikeProjections) {
  for (const std::int64_t rows : {1, 2, 17}) {
    const std::vector<float> x = random_normal<float>(rows * kHidden, 60);
    std::vector<double> all;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<double> y = expected({x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden});
      all.insert(all.end(), y.begin(), y.end());
    }
    EXPECT_LT(testing::relative_error(run(view_, x), all), 1e-6) << rows << " rows";
  }
}

TEST_F(ReferenceMoe, DoesNotDependOnTheOrderOfExperts) {
  MoeView turned = view_;
  std::rotate(turned.experts.begin(), turned.experts.begin() + 3, turned.experts.end());
  std::vector<float> rows = router_;
  std::rotate(rows.begin(), rows.begin() + 3 * kHidden, rows.end());
  turned.router.weight = dense(rows, kExperts);
  const std::vector<float> x = random_normal<float>(6 * kHidden, 61);
  EXPECT_EQ(run(turned, x), run(view_, x));
}

TEST_F(ReferenceMoe, WorksWithoutASharedExpertAndWithoutItsGate) {
  const std::vector<float> x = random_normal<float>(4 * kHidden, 62);
  MoeView routed_only = view_;
  routed_only.shared.reset();
  routed_only.shared_gate.reset();
  MoeView ungated = view_;
  ungated.shared_gate.reset();
  MoeView shut = view_;
  const std::vector<float> zero(kHidden, 0.0f);
  shut.shared_gate->weight = dense(zero, 1);  // sigmoid(0) = 1/2
  const std::vector<float> a = run(routed_only, x), b = run(ungated, x), c = run(shut, x);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(c[i], (a[i] + b[i]) / 2, 1e-5);
}

TEST_F(ReferenceMoe, StaysFiniteWhereHalfPrecisionWouldNot) {
  for (OwnedTrellis& trellis : trellises_) {
    for (Half& svh : trellis.svh) svh = to_half(to_float(svh) * 200);
  }
  const std::vector<float> out = run(view_, random_normal<float>(2 * kHidden, 63));
  EXPECT_GT(*std::max_element(out.begin(), out.end()), 1e6f);
  for (const float value : out) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace pergola
