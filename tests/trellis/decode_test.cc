#include "trellis/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/trellis_samples.h"
#include "trellis/hadamard.h"

namespace pergola {
namespace {

struct LayerVector {
  Codebook codebook;
  int bits;
  double y[8];
  double sum;
};

/// The worked layer example of the format in real arithmetic.
constexpr LayerVector kLayers[] = {
    {Codebook::three_inst,
     3,
     {-0.0702152473, -0.20949782, -0.273200421, 0.0382343427, -0.0481753241, -0.162421385, 0.265292327, 0.163190912},
     0.88725169},
    {Codebook::mcg,
     3,
     {-0.264262552, -0.209903653, 0.137388304, 0.159894774, -0.107833954, 0.155650997, 0.358640335, -0.127943433},
     2.55055766},
    {Codebook::mul1,
     3,
     {-0.0129189856, 0.00711398434, -0.318082178, -0.181734452, 0.0344487444, 0.0171564569, -0.178879057,
      -0.0687918973},
     -1.40638665},
    {Codebook::three_inst,
     4,
     {0.0814306183, -0.222195612, -0.0832774476, 0.225722217, -0.213593098, 0.151702008, -0.352952918, -0.00275434102},
     -1.33588089},
    {Codebook::mul1,
     4,
     {-0.0265399888, -0.133826662, 0.13596548, 0.154922465, -0.146724077, -0.0762817893, 0.0330054017, -0.0336398024},
     0.624356339},
};

std::vector<double> example_input() {
  std::vector<double> x;
  for (int i = 0; i < 128; ++i) x.push_back(((37 * i) % 101 - 50) / 64.0);
  return x;
}

TEST(Hadamard, IsTheSylvesterMatrixAndItsOwnInverse) {
  const auto x = testing::random_normal<double>(256);
  auto y = x;
  hadamard_blocks(y);
  for (int block = 0; block < 2; ++block) {
    for (int i = 0; i < 128; ++i) {
      double sum = 0;
      for (int j = 0; j < 128; ++j)
        sum += (__builtin_parity(static_cast<unsigned>(i & j)) ? -1 : 1) * x[128 * block + j];
      EXPECT_NEAR(y[128 * block + i], sum / std::sqrt(128.0), 1e-13);
    }
  }
  std::vector<float> single(x.begin(), x.end());
  hadamard_blocks(single);
  EXPECT_LT(testing::relative_error(single, y), 3e-7);
  hadamard_blocks(y);
  EXPECT_LT(testing::relative_error(y, x), 1e-15);
}

TEST(TrellisProduct, WorkedLayer) {
  const auto x = example_input();
  for (const LayerVector& vector : kLayers) {
    const auto layer = testing::example_trellis(128, 128, vector.bits, vector.codebook);
    std::vector<double> y(128);
    trellis_product(layer.view(), 1, x, y);
    double sum = 0;
    for (const double value : y) sum += value;
    for (int j = 0; j < 8; ++j)
      EXPECT_NEAR(y[j], vector.y[j], 1e-9) << name_of(vector.codebook) << vector.bits << " " << j;
    EXPECT_NEAR(sum, vector.sum, 1e-8);
  }
}

TEST(TrellisProduct, WorkedLayerTransformedInput) {
  // The format lists these after rounding to binary16.
  constexpr double expected[] = {0.0021801, 0.01416779, -0.00245285, -0.00299644, 0.00272369, -0.00926208};
  const auto layer = testing::example_trellis(128, 128, 3, Codebook::three_inst);
  auto x = example_input();
  for (int i = 0; i < 128; ++i) x[i] *= to_float(layer.suh[i]);
  hadamard_blocks(x);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(x[i], expected[i], 1e-5);
}

TEST(EffectiveWeight, WorkedLayer) {
  const auto mul1 = testing::example_trellis(128, 128, 4, Codebook::mul1);
  const auto w = effective_weight(mul1.view());  // [out][in]; the format lists [in][out]
  constexpr double row0[] = {0.0120489243, -0.0263771263, 0.04660242, -0.0358566798};
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(w[128 * j], row0[j], 1e-10);
  EXPECT_NEAR(w[128 * 7 + 5], 0.0114830463, 1e-10);
  EXPECT_NEAR(w[128 * 127 + 127], 0.0363480085, 1e-10);
  double norm = 0;
  for (const double value : w) norm += value * value;
  EXPECT_NEAR(std::sqrt(norm), 2.93966796, 1e-8);
  double inner = 0;
  for (const Half value : decode_inner(mul1.view())) inner += static_cast<double>(to_float(value)) * to_float(value);
  EXPECT_NEAR(std::sqrt(inner), 128.205864, 1e-6);

  const auto v = effective_weight(testing::example_trellis(128, 128, 3, Codebook::three_inst).view());
  constexpr double v0[] = {0.0261438787, -0.000854853541, 0.00132124871, 0.0436069034};
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(v[128 * j], v0[j], 1e-10);
  EXPECT_NEAR(v[128 * 7 + 5], -0.0306326619, 1e-10);
  EXPECT_NEAR(v[128 * 127 + 127], 0.0595947069, 1e-10);
}

TEST(LinearProduct, EqualsTheEffectiveWeightInLogicalWidths) {
  const auto trellis = testing::random_trellis(256, 128, 5, Codebook::mcg);
  const std::int64_t in = 200;
  const std::int64_t out = 99;
  const auto bias = testing::random_normal<float>(out, 9);
  LinearView linear{"sample", in, out, trellis.view(), DenseView{DType::f32, 1, out, std::as_bytes(std::span(bias))}};
  const auto x = testing::random_normal<double>(3 * in, 5);
  std::vector<double> y(3 * out);
  linear_product(linear, 3, x, y);
  const auto w = effective_weight(trellis.view());
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t j = 0; j < out; ++j) {
      double sum = bias[j];
      for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[j * 256 + i];
      ASSERT_NEAR(y[r * out + j], sum, 1e-11);
    }
  }
}

TEST(LinearProduct, DenseOfEveryFloatType) {
  const std::int64_t in = 37;
  const std::int64_t out = 5;
  const auto w = testing::random_normal<float>(in * out, 3);
  const auto x = testing::random_normal<double>(in, 4);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(1);  // an odd start: views are not aligned
    for (const float value : w) {
      const std::uint16_t bits = type == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
      const auto* from =
          type == DType::f32 ? reinterpret_cast<const std::byte*>(&value) : reinterpret_cast<const std::byte*>(&bits);
      bytes.insert(bytes.end(), from, from + size_of(type));
    }
    LinearView linear{"dense", in, out, DenseView{type, out, in, std::span(bytes).subspan(1)}, std::nullopt};
    std::vector<double> y(out);
    linear_product(linear, 1, x, y);
    for (std::int64_t j = 0; j < out; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t i = 0; i < in; ++i) {
        sum += x[i] * w[j * in + i];
        magnitude += std::abs(x[i] * w[j * in + i]);
      }
      ASSERT_NEAR(y[j], sum, magnitude * (type == DType::f32 ? 1e-12 : type == DType::f16 ? 0x1p-11 : 0x1p-8));
    }
  }
}

}  // namespace
}  // namespace pergola
