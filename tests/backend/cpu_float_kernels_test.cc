#include "backend/cpu/float_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/cpu_features.h"
#include "base/half.h"
#include "support/trellis_samples.h"

namespace pergola {
namespace {

using testing::random_normal;
using testing::relative_error;

std::vector<const FloatKernels*> tables() {
  std::vector<const FloatKernels*> all{&portable_float_kernels()};
#if defined(__x86_64__)
  if (cpu_features().best >= Isa::avx2) all.push_back(&avx2_float_kernels());
  if (cpu_features().best >= Isa::avx512) all.push_back(&avx512_float_kernels());
#endif
  return all;
}

class FloatKernelsTest : public ::testing::TestWithParam<const FloatKernels*> {
 protected:
  const FloatKernels& k = *GetParam();
};

const std::int64_t kLengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 1000};

std::vector<float> positive(std::vector<float> values, float scale) {
  for (float& v : values) v *= scale;
  return values;
}

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_P(FloatKernelsTest, HalvesConvertExactly) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(bits.size());
  k.f16.to_float(bits.data(), floats.data(), 65536);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float expected = to_float(Half{bits[i]});
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(floats[i]) : same_bits(expected, floats[i])) << i;
  }
  k.bf16.to_float(bits.data(), floats.data(), 65536);
  for (std::size_t i = 0; i < bits.size(); ++i) ASSERT_TRUE(same_bits(to_float(BFloat16{bits[i]}), floats[i])) << i;
}

TEST_P(FloatKernelsTest, FloatsRoundToNearestEvenAndStayFinite) {
  std::vector<float> values = random_normal<float>(5001, 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0f, static_cast<int>(i % 60) - 40);
  for (const float special : {0.0f, -0.0f, 65504.0f, 65519.0f, 65520.0f, 1e6f, -1e30f, 2.0f + 0x1p-10f})
    values.push_back(special);
  std::vector<std::uint16_t> bits(values.size());
  k.f16.from_float(values.data(), bits.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(bits[i], to_half(std::fmin(std::fmax(values[i], -65504.0f), 65504.0f)).bits) << values[i];
  }
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  values.push_back(std::numeric_limits<float>::infinity());
  bits.resize(values.size());
  k.bf16.from_float(values.data(), bits.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(bits[i], to_bfloat16(values[i]).bits) << values[i];
}

/// exp_sum with offset 0 is the exponential that everything else is made of.
TEST_P(FloatKernelsTest, ExponentialIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00137f) x.push_back(v);
  std::vector<float> y = x;
  k.exp_sum(y.data(), 0.0f, static_cast<std::int64_t>(y.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::fmax(worst, std::fabs(y[i] - exact) / exact / 0x1p-24);
  }
  EXPECT_LE(worst, 3.0) << "in units of 2^-24";
  std::vector<float> edge{-1e30f, -200.0f, -104.0f, -100.0f,
                          0.0f,   89.0f,   1e30f,   std::numeric_limits<float>::quiet_NaN()};
  k.exp_sum(edge.data(), 0.0f, static_cast<std::int64_t>(edge.size()));
  EXPECT_EQ(edge[0], 0.0f);
  EXPECT_EQ(edge[1], 0.0f);
  EXPECT_LE(edge[2], 0x1p-149f);
  EXPECT_NEAR(edge[3], std::exp(-100.0f), 0x1p-148f);
  EXPECT_EQ(edge[4], 1.0f);
  EXPECT_EQ(edge[5], std::numeric_limits<float>::infinity());
  EXPECT_EQ(edge[6], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(edge[7]));
}

TEST_P(FloatKernelsTest, SumsAndScales) {
  for (const std::int64_t n : kLengths) {
    const auto size = static_cast<std::size_t>(n);
    const std::vector<float> x = random_normal<float>(n, 1), w = random_normal<float>(n, 2),
                             d = random_normal<float>(n, 3);
    double squares = 0, sum_of_squares = 0;
    float largest = x[0];
    for (std::size_t i = 0; i < size; ++i) {
      squares += static_cast<double>(x[i]) * x[i];
      sum_of_squares += (static_cast<double>(x[i]) + d[i]) * (static_cast<double>(x[i]) + d[i]);
      largest = std::fmax(largest, x[i]);
    }
    EXPECT_NEAR(k.sum_squares(x.data(), n), squares, 1e-6 * squares);
    EXPECT_EQ(k.max_value(x.data(), n), largest);
    std::vector<float> sum = x;
    EXPECT_NEAR(k.add_sum_squares(sum.data(), d.data(), n), sum_of_squares, 2e-6 * sum_of_squares + 1e-9);
    std::vector<float> out(size + 1, -7.0f);
    k.scale_weighted(x.data(), w.data(), 0.3f, out.data(), n);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_FLOAT_EQ(out[i], 0.3f * x[i] * w[i]);
      EXPECT_EQ(sum[i], x[i] + d[i]);
    }
    std::vector<float> y = d;
    k.add_scaled(y.data(), x.data(), 0.7f, n);
    k.scale(x.data(), -2.0f, out.data(), n);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(y[i], d[i] + 0.7f * x[i], 1e-6);
      EXPECT_EQ(out[i], -2.0f * x[i]);
    }
    EXPECT_EQ(out[size], -7.0f) << "wrote past the end";
  }
}

TEST_P(FloatKernelsTest, ActivationsAreCloseToDouble) {
  for (const std::int64_t n : kLengths) {
    const std::vector<float> gate = positive(random_normal<float>(n, 1), 6.0f), up = random_normal<float>(n, 2);
    std::vector<float> silu(gate.size()), gelu(gate.size()), gated = up, normed(gate.size());
    k.silu_multiply(gate.data(), up.data(), silu.data(), n);
    k.gelu_multiply(gate.data(), up.data(), gelu.data(), n);
    k.sigmoid_multiply(gated.data(), gate.data(), n);
    k.scale_weighted_silu(up.data(), up.data(), 0.5f, gate.data(), normed.data(), n);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i], sigmoid = 1 / (1 + std::exp(-g));
      const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      EXPECT_NEAR(silu[i], g * sigmoid * up[i], 4e-7 * std::fabs(g * up[i]));
      EXPECT_NEAR(gelu[i], 0.5 * g * (1 + std::tanh(inner)) * up[i], 2e-6 * std::fabs(g * up[i]));
      EXPECT_NEAR(gated[i], sigmoid * up[i], 4e-7 * std::fabs(up[i]));
      EXPECT_NEAR(normed[i], 0.5 * up[i] * up[i] * g * sigmoid, 4e-7 * std::fabs(g * up[i] * up[i]));
    }
  }
  // Far from zero: no overflow on the way to a finite result.
  const std::vector<float> far{-1e4f, -120.0f, 120.0f, 1e4f}, one(4, 1.0f);
  std::vector<float> out(4);
  k.silu_multiply(far.data(), one.data(), out.data(), 4);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[3], 1e4f);
}

/// Values rounded to another type, and what they are then.
struct Rounded {
  std::vector<std::uint16_t> bits;
  std::vector<float> values;

  Rounded(const ElementKernels& elements, const std::vector<float>& from) : bits(from.size()), values(from.size()) {
    elements.from_float(from.data(), bits.data(), static_cast<std::int64_t>(from.size()));
    elements.to_float(bits.data(), values.data(), static_cast<std::int64_t>(from.size()));
  }
};

TEST_P(FloatKernelsTest, ProductsOfEveryShape) {
  for (const std::int64_t m : {1, 2, 3, 5, 6, 7, 8, 13, 64}) {
    for (const std::int64_t n : {1, 3, 8, 15, 16, 17, 33, 64, 80, 130}) {
      for (const std::int64_t depth : {1, 7, 32, 65}) {
        const std::int64_t ldb = n + 3, ldc = n + 5;
        const std::vector<float> a = random_normal<float>(m * depth, 1), b = random_normal<float>(depth * ldb, 2);
        const std::vector<float> start = random_normal<float>(m * ldc, 3);
        std::vector<double> exact;
        for (std::int64_t i = 0; i < m * ldc; ++i) {
          double sum = start[static_cast<std::size_t>(i)];
          for (std::int64_t s = 0; s < depth && i % ldc < n; ++s) {
            sum += static_cast<double>(a[static_cast<std::size_t>(s * m + i / ldc)]) *
                   b[static_cast<std::size_t>(s * ldb + i % ldc)];
          }
          exact.push_back(sum);
        }
        std::vector<float> c = start;
        k.f32.multiply(c.data(), ldc, a.data(), 1, m, b.data(), ldb, m, n, depth, true);
        ASSERT_LE(relative_error(c, exact), 1e-6) << m << " " << n << " " << depth;
        for (std::int64_t i = 0; i < m * ldc; ++i) {
          if (i % ldc < n) continue;
          ASSERT_EQ(c[static_cast<std::size_t>(i)], start[static_cast<std::size_t>(i)]) << "wrote past a row";
        }
        for (const ElementKernels* elements : {&k.f16, &k.bf16}) {
          const Rounded right(*elements, b);
          std::vector<float> same = start;
          c = start;
          k.f32.multiply(same.data(), ldc, a.data(), 1, m, right.values.data(), ldb, m, n, depth, true);
          elements->multiply(c.data(), ldc, a.data(), 1, m, right.bits.data(), ldb, m, n, depth, true);
          ASSERT_EQ(c, same);
        }
      }
    }
  }
}

TEST_P(FloatKernelsTest, DotProductsOfEveryShape) {
  for (const std::int64_t m : {1, 2, 3, 4, 5, 8, 11}) {
    for (const std::int64_t n : {1, 2, 3, 4, 5, 9, 64}) {
      for (const std::int64_t depth : {1, 7, 16, 65, 256}) {
        const std::int64_t lda = depth + 1, ldb = depth + 2;
        const std::vector<float> a = random_normal<float>(m * lda, 1), b = random_normal<float>(n * ldb, 2);
        std::vector<double> exact;
        for (std::int64_t i = 0; i < m * n; ++i) {
          double sum = 0;
          for (std::int64_t s = 0; s < depth; ++s) {
            sum += static_cast<double>(a[static_cast<std::size_t>(i / n * lda + s)]) *
                   b[static_cast<std::size_t>(i % n * ldb + s)];
          }
          exact.push_back(sum);
        }
        std::vector<float> c(exact.size());
        k.f32.dot(c.data(), n, a.data(), lda, b.data(), ldb, m, n, depth);
        ASSERT_LE(relative_error(c, exact), 2e-6) << m << " " << n << " " << depth;
        // A product does not depend on what is computed with it.
        float alone = 0;
        k.f32.dot(&alone, 1, a.data() + (m - 1) * lda, lda, b.data() + (n - 1) * ldb, ldb, 1, 1, depth);
        ASSERT_EQ(alone, c.back());
        for (const ElementKernels* elements : {&k.f16, &k.bf16}) {
          const Rounded right(*elements, b);
          std::vector<float> same(c.size());
          k.f32.dot(same.data(), n, a.data(), lda, right.values.data(), ldb, m, n, depth);
          elements->dot(c.data(), n, a.data(), lda, right.bits.data(), ldb, m, n, depth);
          ASSERT_EQ(c, same);
        }
      }
    }
  }
}

TEST_P(FloatKernelsTest, TransposesAndRotates) {
  for (const std::int64_t rows : {1, 7, 8, 16, 33}) {
    for (const std::int64_t columns : {1, 5, 16, 40, 64}) {
      const std::vector<float> in = random_normal<float>(rows * (columns + 1), 1);
      std::vector<float> out(static_cast<std::size_t>(columns * (rows + 2)), -7.0f);
      k.transpose(in.data(), columns + 1, out.data(), rows + 2, rows, columns);
      for (std::int64_t r = 0; r < rows + 2; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const float expected = r < rows ? in[static_cast<std::size_t>(r * (columns + 1) + c)] : -7.0f;
          ASSERT_EQ(out[static_cast<std::size_t>(c * (rows + 2) + r)], expected);
        }
      }
    }
  }
  for (const std::int64_t pairs : {1, 4, 11, 32}) {
    std::vector<float> x = random_normal<float>(2 * pairs, 1);
    const std::vector<float> before = x, c = random_normal<float>(pairs, 2), s = random_normal<float>(pairs, 3);
    k.rotate_halves(x.data(), c.data(), s.data(), pairs);
    for (std::size_t j = 0; j < c.size(); ++j) {
      ASSERT_NEAR(x[j], before[j] * c[j] - before[j + c.size()] * s[j], 1e-5);
      ASSERT_NEAR(x[j + c.size()], before[j + c.size()] * c[j] + before[j] * s[j], 1e-5);
    }
  }
}

TEST_P(FloatKernelsTest, ConvolutionOfAnyTaps) {
  for (const std::int64_t kernel : {1, 2, 4, 5}) {
    for (const std::int64_t channels : {1, 8, 21, 64}) {
      const std::vector<float> taps = random_normal<float>(channels * kernel, 1),
                               x = random_normal<float>(channels * kernel, 2);
      std::vector<const float*> inputs;
      for (std::int64_t j = 0; j < kernel; ++j) inputs.push_back(x.data() + j * channels);
      std::vector<float> out(static_cast<std::size_t>(channels));
      k.convolve_silu(inputs.data(), taps.data(), kernel, out.data(), channels);
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < kernel; ++j) {
          sum += static_cast<double>(taps[static_cast<std::size_t>(c * kernel + j)]) *
                 inputs[static_cast<std::size_t>(j)][c];
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(c)], sum / (1 + std::exp(-sum)), 2e-6) << kernel << " " << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, FloatKernelsTest, ::testing::ValuesIn(tables()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace pergola
