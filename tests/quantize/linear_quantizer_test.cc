#include "quantize/linear_quantizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "trellis/decode.h"
#include "trellis/tile_encoder.h"

namespace pergola {
namespace {

std::vector<float> gaussian(std::size_t count, unsigned seed, float sigma = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Inputs with a few dominant directions, as activations have.
std::vector<float> correlated_inputs(std::int64_t rows, std::int64_t features, unsigned seed) {
  std::vector<float> x = gaussian(static_cast<std::size_t>(rows * features), seed, 1.0f);
  const std::vector<float> common = gaussian(static_cast<std::size_t>(features), seed + 1, 1.0f);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float strength = 2.0f * x[static_cast<std::size_t>(r * features)];
    for (std::int64_t i = 0; i < features; ++i) {
      float& value = x[static_cast<std::size_t>(r * features + i)];
      value = (value + strength * common[static_cast<std::size_t>(i)]) * (i % 7 == 0 ? 4.0f : 1.0f);
    }
  }
  return x;
}

/// |x (W - Wq)^T|^2 / |x W^T|^2 over all rows, from the weight that the stored bytes stand for.
double output_error(const QuantizedLinear& q, std::span<const float> weight, std::span<const float> x,
                    std::int64_t rows) {
  const std::vector<double> stored = effective_weight(q.view());
  double error = 0, power = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < q.out_features; ++j) {
      double wanted = 0, got = 0;
      for (std::int64_t i = 0; i < q.in_features; ++i) {
        const auto at = static_cast<std::size_t>(j * q.in_features + i);
        const double value = x[static_cast<std::size_t>(r * q.in_features + i)];
        wanted += value * double{weight[at]};
        got += value * stored[at];
      }
      error += (wanted - got) * (wanted - got);
      power += wanted * wanted;
    }
  }
  return error / power;
}

TEST(LinearQuantizer, StoredWeightsAreCloseAtEveryWidth) {
  ThreadPool pool(2);
  LinearQuantizer quantizer(pool);
  const std::vector<float> weight = gaussian(128 * 256, 3);
  const double limits[] = {0.30, 0.075, 0.019, 0.0050, 0.00130, 0.00034, 0.000092, 0.000026};
  for (int bits = 1; bits <= 8; ++bits) {
    const LinearJob job{"test", 256, 128, weight, bits, Codebook::mul1, 7};
    const QuantizedLinear q = quantizer.encode(job, nullptr);
    const std::vector<double> stored = effective_weight(q.view());
    double error = 0, power = 0;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      error += (stored[i] - double{weight[i]}) * (stored[i] - double{weight[i]});
      power += double{weight[i]} * double{weight[i]};
    }
    EXPECT_LT(error / power, limits[bits - 1]) << "K=" << bits;
    EXPECT_NEAR(q.weight_error, error / power, 0.1 * error / power) << "K=" << bits;
  }
}

TEST(LinearQuantizer, CalibrationLowersTheOutputErrorAndIsReportedTruly) {
  ThreadPool pool(2);
  LinearQuantizer quantizer(pool);
  const std::int64_t k = 256, n = 128, rows = 600;
  const std::vector<float> weight = gaussian(static_cast<std::size_t>(k * n), 5), x = correlated_inputs(rows, k, 11);
  Hessian hessian(k);
  hessian.add(x, rows, pool);
  const LinearJob job{"test", k, n, weight, 3, Codebook::mcg, 1};
  const QuantizedLinear plain = quantizer.encode(job, nullptr), calibrated = quantizer.encode(job, &hessian);
  const double before = output_error(plain, weight, x, rows), after = output_error(calibrated, weight, x, rows);
  EXPECT_LT(after, 0.6 * before);
  EXPECT_NEAR(calibrated.proxy_error, after, 0.25 * after);
}

TEST(LinearQuantizer, ThreadsDoNotChangeTheBytes) {
  const std::vector<float> weight = gaussian(256 * 256, 9), x = correlated_inputs(300, 256, 4);
  std::vector<std::byte> first;
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Hessian hessian(256);
    hessian.add(x, 300, pool);
    const QuantizedLinear q = LinearQuantizer(pool).encode({"test", 256, 256, weight, 4, Codebook::mul1, 3}, &hessian);
    if (first.empty()) first = q.trellis;
    EXPECT_EQ(q.trellis, first) << threads;
  }
}

/// What a device does, on the processor.
class BatchOnProcessor : public TileBatchEncoder {
 public:
  void encode(Codebook codebook, int bits, std::span<const float> targets, std::span<std::uint16_t> states) override {
    TileEncoder(codebook, bits, std::min(cpu_features().best, Isa::avx512)).encode(targets, states);
    most = std::max(most, targets.size() / kTileWeights);
  }
  std::size_t most = 0;
};

TEST(LinearQuantizer, ADeviceGetsAllColumnsAtOnceAndTheResultIsTheSame) {
  const std::vector<float> weight = gaussian(128 * 256, 9), x = correlated_inputs(300, 128, 4);
  ThreadPool pool(2);
  Hessian hessian(128);
  hessian.add(x, 300, pool);
  BatchOnProcessor device;
  const LinearJob job{"test", 128, 256, weight, 3, Codebook::mcg, 3};
  const QuantizedLinear own = LinearQuantizer(pool).encode(job, &hessian),
                        batched = LinearQuantizer(pool, &device).encode(job, &hessian);
  EXPECT_EQ(device.most, 256 / kTileSide);
  EXPECT_EQ(own.trellis, batched.trellis);
  EXPECT_DOUBLE_EQ(own.proxy_error, batched.proxy_error);
}

TEST(LinearQuantizer, ZeroChannelsStayExactlyZero) {
  ThreadPool pool(1);
  std::vector<float> weight = gaussian(128 * 128, 2);
  std::fill_n(weight.begin() + 5 * 128, 128, 0.0f);
  const QuantizedLinear q = LinearQuantizer(pool).encode({"test", 128, 128, weight, 4, Codebook::mul1, 3}, nullptr);
  const std::vector<double> stored = effective_weight(q.view());
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(stored[5 * 128 + i], 0.0);
  std::fill(weight.begin(), weight.end(), 0.0f);
  for (double value : effective_weight(
           LinearQuantizer(pool).encode({"test", 128, 128, weight, 4, Codebook::mul1, 3}, nullptr).view())) {
    EXPECT_EQ(value, 0.0);
  }
}

TEST(LinearQuantizer, RefusesWhatIsNotFinite) {
  ThreadPool pool(1);
  std::vector<float> weight = gaussian(128 * 128, 2);
  weight[300] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(LinearQuantizer(pool).encode({"layer.x", 128, 128, weight, 4, Codebook::mul1, 3}, nullptr), Error);
}

TEST(Hessian, LeavesOutRowsThatAreNotFinite) {
  ThreadPool pool(1);
  Hessian hessian(16);
  std::vector<float> x(3 * 16, 1.0f);
  x[20] = std::numeric_limits<float>::quiet_NaN();
  hessian.add(x, 3, pool);
  EXPECT_EQ(hessian.count(), 2);
  EXPECT_EQ(hessian.skipped(), 1);
  EXPECT_FLOAT_EQ(hessian.mean(3, 4), 1.0f);
}

TEST(Hessian, FactorsMultiplyBack) {
  ThreadPool pool(1);
  const std::vector<float> x = correlated_inputs(200, 64, 8);
  Hessian hessian(64);
  hessian.add(x, 200, pool);
  std::vector<float> matrix;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 64; ++j) matrix.push_back(hessian.mean(i, j) + (i == j ? 0.5f : 0.0f));
  }
  const BlockLdl ldl = factor(matrix, 64, 0.0);
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = 0;
      for (int b = 0; b < 64; b += 16) {
        for (int p = 0; p < 16; ++p) {
          double left = 0, right = 0;
          for (int q = p; q < 16; ++q) {
            left += double{ldl.lower[static_cast<std::size_t>(i * 64 + b + q)]} *
                    double{ldl.root[static_cast<std::size_t>(b * 16 + q * 16 + p)]};
            right += double{ldl.lower[static_cast<std::size_t>(j * 64 + b + q)]} *
                     double{ldl.root[static_cast<std::size_t>(b * 16 + q * 16 + p)]};
          }
          sum += left * right;
        }
      }
      EXPECT_NEAR(sum, double{matrix[static_cast<std::size_t>(i * 64 + j)]}, 1e-3 * 30) << i << "," << j;
    }
  }
}

}  // namespace
}  // namespace pergola
