#include <gtest/gtest.h>

#include <vector>

#include "backend/reference/linear.h"
#include "base/thread_pool.h"
#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using testing::OwnedTrellis;
using testing::random_normal;

/// What apply_linear gives for packed rows, with and without a pool.
std::vector<float> apply(const LinearView& linear, const std::vector<float>& x, std::int64_t rows,
                         ThreadPool* pool = nullptr) {
  std::vector<float> y(static_cast<std::size_t>(rows * linear.out_features));
  reference::apply_linear(linear, x.data(), linear.in_features, rows, y.data(), linear.out_features, pool);
  return y;
}

std::vector<double> expected(const LinearView& linear, const std::vector<float>& x, std::int64_t rows) {
  std::vector<double> y(static_cast<std::size_t>(rows * linear.out_features));
  linear_product(linear, rows, std::vector<double>(x.begin(), x.end()), y);
  return y;
}

TEST(ReferenceLinear, AgreesWithTheDefinitionOfATrellis) {
  for (const Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1}) {
    for (int bits = 1; bits <= 8; ++bits) {
      const OwnedTrellis trellis = testing::random_trellis(384, 256, bits, codebook, static_cast<std::uint32_t>(bits));
      const LinearView linear{"test", 384, 256, trellis.view(), {}};
      const std::vector<float> x = random_normal<float>(3 * 384);
      EXPECT_LT(testing::relative_error(apply(linear, x, 3), expected(linear, x, 3)), 2e-7)
          << name_of(codebook) << " K" << bits;
    }
  }
}

TEST(ReferenceLinear, ExtendsInputsAndCutsOutputsOfPaddedTrellises) {
  const OwnedTrellis trellis = testing::random_trellis(256, 384, 4, Codebook::mul1);
  const std::vector<float> bias = random_normal<float>(300, 7);
  const LinearView linear{"test", 200, 300, trellis.view(),
                          DenseView{DType::f32, 1, 300, std::as_bytes(std::span(bias))}};
  const std::vector<float> x = random_normal<float>(2 * 200);
  EXPECT_LT(testing::relative_error(apply(linear, x, 2), expected(linear, x, 2)), 2e-7);
}

TEST(ReferenceLinear, ReadsDenseWeightsOfEveryTypeAtAnyAlignment) {
  const std::int64_t in = 37;
  const std::int64_t out = 150;
  const std::vector<float> weights = random_normal<float>(in * out, 5);
  const std::vector<float> x = random_normal<float>(4 * in);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(1 + weights.size() * size_of(type));  // starts at an odd address
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::uint16_t half = type == DType::f16 ? to_half(weights[i]).bits : to_bfloat16(weights[i]).bits;
      if (type == DType::f32) {
        std::memcpy(bytes.data() + 1 + i * 4, &weights[i], 4);
      } else {
        std::memcpy(bytes.data() + 1 + i * 2, &half, 2);
      }
    }
    const LinearView linear{"test", in, out, DenseView{type, out, in, std::span(bytes).subspan(1)}, {}};
    EXPECT_LT(testing::relative_error(apply(linear, x, 4), expected(linear, x, 4)), 2e-7) << name_of(type);
  }
}

TEST(ReferenceLinear, APoolChangesNoBit) {
  const OwnedTrellis trellis = testing::random_trellis(256, 512, 3, Codebook::mcg);
  const LinearView linear{"test", 256, 512, trellis.view(), {}};
  const std::vector<float> x = random_normal<float>(5 * 256);
  ThreadPool pool(3);
  EXPECT_EQ(apply(linear, x, 5, &pool), apply(linear, x, 5));
}

}  // namespace
}  // namespace pergola
