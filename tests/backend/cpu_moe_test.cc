#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "backend/backend.h"
#include "backend/cpu/moe_routing.h"
#include "support/device_tensors.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::DeviceTensors;
using testing::OwnedTrellis;
using testing::random_normal;
using testing::random_trellis;
using testing::relative_error;

/// A layer and the memory behind its views.
struct OwnedMoe {
  std::deque<OwnedTrellis> trellises;
  std::deque<std::vector<float>> floats;
  MoeView view;

  LinearView dense(std::int64_t in, std::int64_t out, float scale, std::uint32_t seed) {
    std::vector<float>& values = floats.emplace_back(random_normal<float>(in * out, seed));
    for (float& v : values) v *= scale;
    return {"dense", in, out, DenseView{DType::f32, out, in, std::as_bytes(std::span(values))}, {}};
  }

  LinearView trellis(std::int64_t in, std::int64_t out, int bits, Codebook codebook, std::uint32_t seed) {
    const auto padded = [](std::int64_t n) { return (n + 127) / 128 * 128; };
    trellises.push_back(random_trellis(padded(in), padded(out), bits, codebook, seed));
    return {"trellis", in, out, trellises.back().view(), {}};
  }
};

struct Options {
  std::int64_t hidden = 256;
  std::int64_t width = 128;
  std::int64_t shared_width = 384;  ///< 0: no shared expert
  int experts = 8;
  int top_k = 3;
  bool dense = false;
  bool mixed = false;      ///< every projection has a K and a codebook of its own
  bool equal_suh = false;  ///< gate and up share their input vector
  bool shared_gate = true;
  float svh_scale = 1.0f;
  Activation activation = Activation::silu;
  RouterScore score = RouterScore::softmax_top_k;
  bool correction = false;
  int groups = 1;
  int top_groups = 1;
};

OwnedMoe make_moe(const Options& o) {
  OwnedMoe moe;
  std::uint32_t seed = 100;
  int kind = 0;
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    ++seed;
    if (o.dense) return moe.dense(in, out, 1.0f / std::sqrt(static_cast<float>(in)), seed);
    const int bits = o.mixed ? 1 + kind % 8 : 3;
    const Codebook codebook = o.mixed ? static_cast<Codebook>(kind % 3) : Codebook::mul1;
    kind += 5;
    return moe.trellis(in, out, bits, codebook, seed);
  };
  const auto expert = [&](std::int64_t width) {
    MoeView::Expert e{linear(o.hidden, width), linear(o.hidden, width), linear(width, o.hidden)};
    if (o.equal_suh) {
      OwnedTrellis& gate = moe.trellises[moe.trellises.size() - 3];
      OwnedTrellis& up = moe.trellises[moe.trellises.size() - 2];
      up.suh = gate.suh;
      e.up.weight = up.view();
    }
    if (o.svh_scale != 1.0f) {
      OwnedTrellis& down = moe.trellises.back();
      for (Half& h : down.svh) h = to_half(to_float(h) * o.svh_scale);
      e.down.weight = down.view();
    }
    return e;
  };
  moe.view.name = "test";
  moe.view.hidden = o.hidden;
  moe.view.top_k = o.top_k;
  moe.view.activation = o.activation;
  moe.view.score = o.score;
  moe.view.groups = o.groups;
  moe.view.top_groups = o.top_groups;
  if (o.score == RouterScore::sigmoid) moe.view.routed_scale = 1.8f;
  if (o.correction) moe.view.correction = std::get<DenseView>(moe.dense(o.experts, 1, 0.3f, 77).weight);
  moe.view.router = moe.dense(o.hidden, o.experts, 0.2f, 1);
  for (int e = 0; e < o.experts; ++e) moe.view.experts.push_back(expert(o.width));
  if (o.shared_width > 0) moe.view.shared = expert(o.shared_width);
  if (o.shared_width > 0 && o.shared_gate) moe.view.shared_gate = moe.dense(o.hidden, 1, 0.2f, 2);
  return moe;
}

std::vector<float> run(Backend& backend, const Moe& moe, const std::vector<float>& x, std::int64_t rows) {
  DeviceTensors made(backend, 3);
  const Tensor in = made.floats(x, rows);
  const Tensor out = made.result(rows, in.columns);
  backend.moe(moe, in, out);
  backend.synchronize();
  return made.read(out);
}

std::vector<float> run(Backend& backend, const MoeView& view, const std::vector<float>& x, std::int64_t rows) {
  return run(backend, *backend.bind_moe(view), x, rows);
}

/// Compares all row counts of a layer with the reference. The tolerance is that of the linears (12-bit activations).
void compare(const OwnedMoe& moe, const std::vector<std::int64_t>& row_counts, double tolerance) {
  const std::int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  const std::vector<float> x = random_normal<float>(most * moe.view.hidden, 7);
  const std::vector<float> expected = run(*reference, moe.view, x, most);  // rows are independent
  for (const testing::CpuVariant& variant : testing::cpu_variants()) {
    const std::unique_ptr<Backend> cpu = open_backend(
        "cpu", {.threads = variant.threads, .isa = variant.isa, .precision = Precision::exact, .max_rows = most});
    const std::unique_ptr<Moe> bound = cpu->bind_moe(moe.view);
    for (const std::int64_t rows : row_counts) {
      const auto count = static_cast<std::ptrdiff_t>(rows * moe.view.hidden);
      const std::vector<float> actual = run(*cpu, *bound, {x.begin(), x.begin() + count}, rows);
      ASSERT_LE(relative_error(actual, std::vector<float>(expected.begin(), expected.begin() + count)), tolerance)
          << rows << " rows, " << variant.isa << ", " << variant.threads << " threads";
    }
  }
}

constexpr double kTolerance = 4e-3;

TEST(CpuMoe, EveryRowCount) {
  compare(make_moe({}), {1, 2, 3, 5, 17, 40, 100}, kTolerance);
}

TEST(CpuMoe, ProjectionsOfMixedKAndCodebook) {
  compare(make_moe({.mixed = true}), {1, 4, 60}, kTolerance);
  compare(make_moe({.mixed = true, .equal_suh = true}), {1, 4, 60}, kTolerance);
}

TEST(CpuMoe, EqualInputVectors) {
  compare(make_moe({.equal_suh = true}), {1, 3, 50}, kTolerance);
}

TEST(CpuMoe, DenseExperts) {
  compare(make_moe({.hidden = 96, .width = 40, .shared_width = 72, .dense = true}), {1, 5, 50}, 1e-5);
}

TEST(CpuMoe, EveryWayOfRouting) {
  Options options{.hidden = 96, .width = 40, .shared_width = 0, .experts = 12, .dense = true};
  for (const RouterScore score : {RouterScore::softmax_all, RouterScore::sigmoid}) {
    options.score = score;
    compare(make_moe(options), {1, 5, 50}, 1e-5);
  }
  options.correction = true;
  compare(make_moe(options), {1, 5, 50}, 1e-5);
  options.groups = 4;
  options.top_groups = 2;
  compare(make_moe(options), {1, 5, 50}, 1e-5);
  options.groups = 12;  // of one expert each
  options.top_groups = 3;
  compare(make_moe(options), {1, 5, 50}, 1e-5);
}

TEST(CpuMoe, ClampedSwiglu) {
  compare(make_moe({.hidden = 96, .width = 300, .dense = true, .activation = Activation::clamped_swiglu}), {1, 5, 50},
          1e-5);
}

TEST(CpuMoe, WidthsThatArePadded) {
  compare(make_moe({.hidden = 200, .width = 72, .shared_width = 300}), {1, 5, 50}, kTolerance);
}

TEST(CpuMoe, WithoutSharedExpertOrItsGate) {
  compare(make_moe({.shared_width = 0, .activation = Activation::gelu_tanh}), {1, 30}, kTolerance);
  compare(make_moe({.shared_gate = false}), {1, 30}, kTolerance);
}

TEST(CpuMoe, AllExpertsChosen) {
  compare(make_moe({.experts = 4, .top_k = 4}), {1, 33}, kTolerance);
}

/// Many experts of one to two rows: they go to single members, the shared expert through the stages.
TEST(CpuMoe, ManyExperts) {
  compare(make_moe({.hidden = 128, .width = 128, .shared_width = 128, .experts = 64, .top_k = 4}), {1, 7, 64},
          kTolerance);
}

TEST(CpuMoe, AllTokensOnOneExpertAndEmptyExperts) {
  OwnedMoe moe = make_moe({.top_k = 1});
  // The router likes expert 5 whatever the row says: its weights are all alike, and so are the signs of x.
  std::vector<float>& router = moe.floats.front();
  for (std::size_t i = 0; i < router.size(); ++i) router[i] = i / 256 == 5 ? 1.0f : -1.0f;
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  std::vector<float> x = random_normal<float>(70 * 256, 3);
  for (float& v : x) v = std::fabs(v);
  const std::vector<float> expected = run(*reference, moe.view, x, 70);
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<Backend> cpu =
        open_backend("cpu", {.threads = threads, .precision = Precision::exact, .max_rows = 70});
    EXPECT_LE(relative_error(run(*cpu, moe.view, x, 70), expected), kTolerance);
  }
}

TEST(CpuMoe, LargeOutputsStayFinite) {
  OwnedMoe moe = make_moe({.svh_scale = 4e4f});
  const std::unique_ptr<Backend> reference = open_backend("reference", {.threads = 2});
  std::vector<float> x = random_normal<float>(20 * 256, 3);
  for (float& v : x) v *= 30.0f;
  const std::vector<float> expected = run(*reference, moe.view, x, 20);
  EXPECT_GT(*std::max_element(expected.begin(), expected.end()), 1e6f);
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2, .max_rows = 20});
  EXPECT_LE(relative_error(run(*cpu, moe.view, x, 20), expected), kTolerance);
}

TEST(CpuMoe, DoesNotDependOnTheTeamOrTheOtherRows) {
  const OwnedMoe moe = make_moe({.hidden = 128, .width = 128, .experts = 32, .top_k = 4, .mixed = true});
  const std::vector<float> x = random_normal<float>(90 * 128, 4);
  const std::unique_ptr<Backend> one = open_backend("cpu", {.threads = 1, .max_rows = 90});
  const std::vector<float> expected = run(*one, moe.view, x, 90);
  for (const int threads : {2, 3, 8}) {
    const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = threads, .max_rows = 90});
    EXPECT_EQ(run(*cpu, moe.view, x, 90), expected);
  }
}

/// Work space that the plan counts is what binding takes, and a small step after a large one does not see its
/// leftovers.
TEST(CpuMoe, LongThenShort) {
  const OwnedMoe moe = make_moe({});
  const std::unique_ptr<Backend> cpu = open_backend("cpu", {.threads = 2, .max_rows = 200});
  const std::unique_ptr<Moe> bound = cpu->bind_moe(moe.view);
  EXPECT_EQ(bound->bytes(), cpu->footprint(moe.view).weights);
  const std::vector<float> x = random_normal<float>(200 * 256, 4);
  const std::vector<float> first(x.begin(), x.begin() + 256);
  const std::vector<float> fresh = run(*cpu, *bound, first, 1);
  std::vector<float> poison(x.size(), std::numeric_limits<float>::quiet_NaN());
  run(*cpu, *bound, poison, 200);
  EXPECT_EQ(run(*cpu, *bound, first, 1), fresh);
}

TEST(MoeRouting, TakesTheLargestAndBreaksTiesByIndex) {
  const std::vector<float> logits{1, 5, 3, 5, -2, 3, 5, 0};
  std::int32_t experts[5];
  float weights[5];
  cpu::route_row(logits.data(), 8, 5, experts, weights);
  EXPECT_EQ(std::vector<std::int32_t>(experts, experts + 5), (std::vector<std::int32_t>{1, 3, 6, 2, 5}));
  const double total = 3 + 2 * std::exp(-2.0);
  EXPECT_NEAR(weights[0], 1 / total, 1e-7);
  EXPECT_NEAR(weights[4], std::exp(-2.0) / total, 1e-7);
}

TEST(MoeRouting, NotANumberNeverLeavesTheRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{nan, 1, nan, 2, nan};
  std::int32_t experts[4];
  float weights[4];
  cpu::route_row(logits.data(), 5, 4, experts, weights);
  for (const std::int32_t e : experts) EXPECT_TRUE(e >= 0 && e < 5);
}

TEST(MoeRouting, OrdersPicksByExpertThenRow) {
  const std::vector<std::int32_t> picks{2, 0, /**/ 2, 1, /**/ 0, 2};
  std::int64_t first[5], place[6];
  std::int32_t rows[6];
  cpu::order_by_expert(picks.data(), 3, 2, 4, {first, rows, place});
  EXPECT_EQ(std::vector<std::int64_t>(first, first + 5), (std::vector<std::int64_t>{0, 2, 3, 6, 6}));
  EXPECT_EQ(std::vector<std::int32_t>(rows, rows + 6), (std::vector<std::int32_t>{0, 2, 1, 0, 1, 2}));
  EXPECT_EQ(std::vector<std::int64_t>(place, place + 6), (std::vector<std::int64_t>{3, 0, 4, 2, 1, 5}));
}

}  // namespace
}  // namespace pergola
