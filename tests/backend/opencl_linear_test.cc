// Every way in which the OpenCL backend multiplies trellises, against the definition in double. On devices without
// matrix units their plain twins run.
#ifdef PERGOLA_HAS_OPENCL
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backend/opencl/device.h"
#include "backend/opencl/linear.h"
#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola::opencl {
namespace {

using pergola::testing::OwnedTrellis;
using pergola::testing::random_normal;
using pergola::testing::random_trellis;

struct Way {
  const char* name;
  Precision precision;
  bool matrix_units;
  int first_bits;    ///< K of the first member; the others follow in steps of 3, so that the ways cover all K
  double tolerance;  ///< of the relative error over all outputs
};

constexpr Way kWays[] = {{"exact", Precision::exact, false, 1, 3e-6},
                         {"fp32", Precision::standard, false, 2, 5e-4},
                         {"int8", Precision::int8, false, 3, 2e-2},
                         {"two_bytes_on_matrix_units", Precision::standard, true, 5, 1e-3},
                         {"int8_on_matrix_units", Precision::int8, true, 6, 2e-2}};

class OpenClLinear : public ::testing::TestWithParam<Way> {};

TEST_P(OpenClLinear, AgainstTheDefinition) {
  std::string why_none;
  if (find_devices(why_none).empty()) GTEST_SKIP() << "no OpenCL device: " << why_none;
  Device device(0);
  const Way& way = GetParam();
  // Inputs cross the slab of every variant; padded widths; one member with a bias.
  constexpr std::int64_t kIn = 2048 + 300, kStored = 2432;
  const std::vector<float> bias = random_normal<float>(200, 5);
  std::vector<OwnedTrellis> owned;
  std::vector<LinearView> views;
  for (int i = 0; i < 3; ++i)
    owned.push_back(random_trellis(kStored, 256, (way.first_bits + 3 * i - 1) % 8 + 1, static_cast<Codebook>(i),
                                   static_cast<std::uint32_t>(i)));
  for (int i = 0; i < 3; ++i)
    views.push_back({"member", kIn, i == 0 ? 256 : 200, owned[static_cast<std::size_t>(i)].view(), std::nullopt});
  views[1].bias = DenseView{DType::f32, 1, 200, std::as_bytes(std::span(bias))};
  const OpenClLinears linears(device, views, 33, RowTiles(way.precision, way.matrix_units, device.facts().gpu));

  for (const std::int64_t rows : {1, 33}) {
    const std::vector<float> x = random_normal<float>(rows * kIn, 9);
    const std::size_t x_bytes = x.size() * sizeof(float), out_bytes = static_cast<std::size_t>(rows) * 656 * 4;
    const Memory x_memory = device.allocate(x_bytes, "x"), out_memory = device.allocate(out_bytes, "out");
    check(clEnqueueWriteBuffer(device.queue(), x_memory.get(), CL_TRUE, 0, x_bytes, x.data(), 0, nullptr, nullptr), "");
    std::vector<FloatMatrix> outs;
    for (std::size_t i = 0; i < 3; ++i)
      outs.push_back({out_memory.get(), i == 0 ? 0u : 56u + 200u * i, 656, rows, views[i].out_features});
    linears.run(device, {x_memory.get(), 0, kIn, rows, kIn}, outs);
    std::vector<float> found(static_cast<std::size_t>(rows) * 656);
    check(
        clEnqueueReadBuffer(device.queue(), out_memory.get(), CL_TRUE, 0, out_bytes, found.data(), 0, nullptr, nullptr),
        "");
    const std::vector<double> input(x.begin(), x.end());
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<double> expected(static_cast<std::size_t>(rows * views[i].out_features));
      linear_product(views[i], rows, input, expected);
      double difference = 0, size = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < views[i].out_features; ++c) {
          const double value = expected[static_cast<std::size_t>(r * views[i].out_features + c)];
          const double d = found[outs[i].offset + static_cast<std::size_t>(r * 656 + c)] - value;
          difference += d * d;
          size += value * value;
        }
      }
      const double error = std::sqrt(difference / size);
      EXPECT_LE(error, way.tolerance) << rows << " rows, member " << i;
      RecordProperty("error_" + std::to_string(rows) + "_" + std::to_string(i), std::to_string(error));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, OpenClLinear, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace pergola::opencl
#endif
