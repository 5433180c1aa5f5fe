#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "backend/reference/attention.h"
#include "support/device_tensor.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::DeviceBatch;
using testing::DeviceTensor;
using testing::random_normal;

class ReferenceAttention : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPage = 4;
  static constexpr std::int64_t kPages = 6;

  /// A cache whose unwritten rows are NaN.
  void make_cache(const Attention& layer) {
    const std::int64_t width = std::int64_t{layer.kv_heads} * layer.head_dim;
    const std::vector<float> poison(static_cast<std::size_t>(kPages * kPage * width),
                                    std::numeric_limits<float>::quiet_NaN());
    keys_ = std::make_unique<DeviceTensor>(*backend_, kPages * kPage, width, poison);
    values_ = std::make_unique<DeviceTensor>(*backend_, kPages * kPage, width, poison);
    cache_ = {*keys_, *values_, kPage};
  }

  std::vector<float> run(const Attention& layer, const std::vector<float>& q, const std::vector<float>& k,
                         const std::vector<float>& v, const Batch& batch) {
    const auto tensor = [&](const std::vector<float>& values) {
      return DeviceTensor(*backend_, batch.rows, static_cast<std::int64_t>(values.size()) / batch.rows, values);
    };
    const DeviceTensor out(*backend_, batch.rows, std::int64_t{layer.heads} * layer.head_dim);
    backend_->attention(layer, tensor(q), tensor(k), tensor(v), cache_, batch, out);
    return out.values();
  }

  std::unique_ptr<Backend> backend_ = open_backend("reference", {.threads = 2});
  std::unique_ptr<DeviceTensor> keys_;
  std::unique_ptr<DeviceTensor> values_;
  KvLayer cache_;
};

/// Plain attention of one sequence without pages: rows of q over all rows of k and v up to their own.
std::vector<double> plain_attention(const Attention& layer, const float* q, const float* k, const float* v,
                                    std::int64_t rows) {
  const std::int64_t d = layer.head_dim;
  std::vector<double> out;
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t h = 0; h < layer.heads; ++h) {
      const std::int64_t kv = h * layer.kv_heads / layer.heads * d;
      std::vector<double> sum(static_cast<std::size_t>(d), 0.0);
      double total = 0;
      for (std::int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i)
          score += q[(t * layer.heads + h) * d + i] * k[s * layer.kv_heads * d + kv + i];
        const double w = std::exp(score * layer.scale);
        total += w;
        for (std::int64_t i = 0; i < d; ++i) sum[static_cast<std::size_t>(i)] += w * v[s * layer.kv_heads * d + kv + i];
      }
      for (const double x : sum) out.push_back(x / total);
    }
  }
  return out;
}

TEST_F(ReferenceAttention, FindsEachSequenceThroughItsPages) {
  Attention layer{.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.3f};
  make_cache(layer);
  // Two sequences of 9 and 6 tokens over scattered pages, in three steps of unlike pieces; together they use every page
  // but one.
  const std::vector<float> q = random_normal<float>(15 * 32, 1), k = random_normal<float>(15 * 16, 2),
                           v = random_normal<float>(15 * 16, 3);
  const std::vector<std::int32_t> table{5, 0, 3, 2, 4, 1};
  const auto rows = [](const std::vector<float>& all, std::int64_t width, std::int64_t a, std::int64_t na,
                       std::int64_t b, std::int64_t nb) {
    std::vector<float> part(all.begin() + a * width, all.begin() + (a + na) * width);
    part.insert(part.end(), all.begin() + (9 + b) * width, all.begin() + (9 + b + nb) * width);
    return part;
  };
  std::vector<float> first, second;
  for (const auto& [a, na, b, nb] :
       std::vector<std::array<std::int64_t, 4>>{{0, 5, 0, 1}, {5, 1, 1, 4}, {6, 3, 5, 1}}) {
    const DeviceBatch batch(*backend_, {na, nb}, {a, b}, {0, 1}, table);
    const std::vector<float> out =
        run(layer, rows(q, 32, a, na, b, nb), rows(k, 16, a, na, b, nb), rows(v, 16, a, na, b, nb), batch);
    first.insert(first.end(), out.begin(), out.begin() + na * 32);
    second.insert(second.end(), out.begin() + na * 32, out.end());
  }
  EXPECT_LT(testing::relative_error(first, plain_attention(layer, q.data(), k.data(), v.data(), 9)), 1e-6);
  EXPECT_LT(testing::relative_error(second,
                                    plain_attention(layer, q.data() + 9 * 32, k.data() + 9 * 16, v.data() + 9 * 16, 6)),
            1e-6);
}

TEST_F(ReferenceAttention, GatesEachHeadByTheSecondHalfOfItsQuery) {
  Attention layer{.heads = 2, .kv_heads = 1, .head_dim = 4, .gated = true, .scale = 0.5f};
  make_cache(layer);
  const DeviceBatch batch(*backend_, {1}, {0}, {0}, {0});
  // One token attends to itself alone: the output is v times the gate. Head 0: gate open, closed, half, open; head 1:
  // half.
  const std::vector<float> q{9, 9, 9, 9, 100, -100, 0, 100, 9, 9, 9, 9, 0, 0, 0, 0};
  const std::vector<float> out = run(layer, q, {1, 2, 3, 4}, {1, 2, 3, 4}, batch);
  const std::vector<float> expected{1, 0, 1.5f, 4, 0.5f, 1, 1.5f, 2};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-30) << i;
}

TEST_F(ReferenceAttention, GivesConsecutiveQueryHeadsOneKvHead) {
  Attention layer{.heads = 6, .kv_heads = 2, .head_dim = 2, .scale = 1};
  make_cache(layer);
  const DeviceBatch batch(*backend_, {1}, {0}, {0}, {3});
  const std::vector<float> out = run(layer, random_normal<float>(12), {0, 0, 0, 0}, {1, 1, 2, 2}, batch);
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}));
}

TEST_F(ReferenceAttention, SurvivesScoresThatOverflowAnExponential) {
  Attention layer{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1};
  make_cache(layer);
  const DeviceBatch batch(*backend_, {2}, {0}, {0}, {1});
  const std::vector<float> out = run(layer, {1, 0, 1e3f, 0}, {1, 0, 2, 0}, {5, 6, 7, 8}, batch);
  EXPECT_EQ(out, (std::vector<float>{5, 6, 7, 8}));
}

TEST_F(ReferenceAttention, StoresNormedAndRotatedKeysAndPlainValues) {
  Attention layer{.heads = 1, .kv_heads = 1, .head_dim = 4, .scale = 1};
  const DeviceTensor weight(*backend_, {2, 2, 2, 2});
  const DeviceTensor inv_freq(*backend_, {1.0f});
  layer.k_norm = RmsNorm{weight, 0};
  layer.rope = {.dims = 2, .inv_freq = inv_freq};
  make_cache(layer);
  const DeviceBatch batch(*backend_, {1}, {2}, {0}, {1});
  cache_.page_size = kPage;
  // Positions 0 and 1 of page 1 are written by hand; the row is at position 2.
  run(layer, {0, 0, 0, 0}, {3, 3, 3, 3}, {1, 2, 3, 4}, batch);
  const std::vector<float> keys = keys_->values(), values = values_->values();
  const std::size_t at = (1 * kPage + 2) * 4;
  EXPECT_FLOAT_EQ(keys[at], static_cast<float>(2 * (std::cos(2.0) - std::sin(2.0))));
  EXPECT_FLOAT_EQ(keys[at + 1], static_cast<float>(2 * (std::cos(2.0) + std::sin(2.0))));
  EXPECT_FLOAT_EQ(keys[at + 2], 2);
  EXPECT_FLOAT_EQ(keys[at + 3], 2);
  EXPECT_EQ(values[at + 3], 4);
}

class Rotation : public ::testing::Test {
 protected:
  Rope rope(int dims, bool interleaved) {
    std::vector<float> frequencies;
    for (int j = 0; j < dims / 2; ++j) frequencies.push_back(1.0f / static_cast<float>(1 + j));
    inv_freq_ = std::make_unique<DeviceTensor>(*backend_, frequencies);
    return {.dims = dims, .interleaved = interleaved, .inv_freq = *inv_freq_};
  }

  std::unique_ptr<Backend> backend_ = open_backend("reference", {.threads = 1});
  std::unique_ptr<DeviceTensor> inv_freq_;
};

TEST_F(Rotation, LeavesTheRestOfTheHeadAlone) {
  const Rope half_split = rope(64, false);
  const std::vector<float> head = random_normal<float>(256);
  std::vector<float> rotated = head;
  reference::rotate(half_split, 12345, rotated.data());
  EXPECT_TRUE(std::equal(head.begin() + 64, head.end(), rotated.begin() + 64));
  for (std::size_t j = 0; j < 64; ++j) EXPECT_NE(rotated[j], head[j]) << j;
}

TEST_F(Rotation, TurnsPairsByPositionTimesFrequency) {
  for (const bool interleaved : {false, true}) {
    const Rope turned = rope(8, interleaved);
    for (int j = 0; j < 4; ++j) {
      const auto first = static_cast<std::size_t>(interleaved ? 2 * j : j);
      const auto second = static_cast<std::size_t>(interleaved ? 2 * j + 1 : j + 4);
      std::vector<float> head(8, 0.0f);
      head[first] = 1;
      reference::rotate(turned, 7, head.data());
      const double angle = static_cast<double>(7 * (1.0f / static_cast<float>(1 + j)));
      std::vector<float> expected(8, 0.0f);
      expected[first] = static_cast<float>(std::cos(angle));
      expected[second] = static_cast<float>(std::sin(angle));
      EXPECT_EQ(head, expected) << "pair " << j << (interleaved ? " interleaved" : "");
    }
  }
}

TEST_F(Rotation, MakesScoresDependOnDistanceAlone) {
  const Rope half_split = rope(16, false);
  const std::vector<float> q = random_normal<float>(16, 1), k = random_normal<float>(16, 2);
  const auto score = [&](std::int64_t q_position, std::int64_t k_position) {
    std::vector<float> a = q, b = k;
    reference::rotate(half_split, q_position, a.data());
    reference::rotate(half_split, k_position, b.data());
    double sum = 0;
    for (std::size_t i = 0; i < 16; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  };
  EXPECT_NEAR(score(9, 4), score(105, 100), 1e-4);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-2);
}

TEST_F(Rotation, ScalesByTheMagnitude) {
  Rope scaled = rope(4, false);
  scaled.magnitude = 3;
  std::vector<float> head{1, 2, 3, 4, 5};
  reference::rotate(scaled, 0, head.data());
  EXPECT_EQ(head, (std::vector<float>{3, 6, 9, 12, 5}));
}

}  // namespace
}  // namespace pergola
