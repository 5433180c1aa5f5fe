#include "format/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "format/allocation_peak.h"
#include "format/checkpoint.h"
#include "support/checkpoint_writer.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using ::testing::HasSubstr;

TEST(Fp8, ValuesByHand) {
  // Sign, four exponent bits (bias 7, 0 is subnormal), three mantissa bits.
  constexpr std::array<std::pair<int, float>, 9> kValues{{{0x00, 0.0f},
                                                          {0x01, 0x1p-9f},
                                                          {0x07, 0x1.Cp-7f},
                                                          {0x08, 0x1p-6f},
                                                          {0x38, 1.0f},
                                                          {0x3C, 1.5f},
                                                          {0xC0, -2.0f},
                                                          {0x7E, 448.0f},
                                                          {0xFE, -448.0f}}};
  for (const auto& [code, value] : kValues) EXPECT_EQ(decode_e4m3(static_cast<std::byte>(code)), value) << code;
  EXPECT_TRUE(std::isnan(decode_e4m3(std::byte{0x7F})));
  EXPECT_TRUE(std::isnan(decode_e4m3(std::byte{0xFF})));
}

TEST(Fp8, NeighbouringCodesGrow) {
  for (int code = 1; code < 0x7F; ++code)
    EXPECT_GT(decode_e4m3(static_cast<std::byte>(code)), decode_e4m3(static_cast<std::byte>(code - 1))) << code;
}

constexpr std::int64_t kOut = 200, kIn = 130;

/// One linear "x" of ones, its scales of this shape under this suffix.
class Folder {
 public:
  Folder(const char* suffix, std::vector<std::int64_t> shape, const std::vector<float>& scales, char code = 0x38) {
    testing::TensorWriter writer;
    writer.add("x.weight", DType::f8_e4m3, {kOut, kIn}, std::string(static_cast<std::size_t>(kOut * kIn), code));
    if (!scales.empty()) writer.add_floats(std::string("x.weight") + suffix, std::move(shape), scales);
    writer.write(folder_ / "model.safetensors");
    testing::write_text(folder_ / "config.json", "{}");
  }

  float at(std::int64_t row, std::int64_t column) const {
    const Checkpoint checkpoint(folder_.path());
    return dense_element(*checkpoint.linear("x", kIn, kOut).dense(), row * kIn + column);
  }

  std::string refusal() const {
    const Checkpoint checkpoint(folder_.path());
    return testing::refusal(1000, [&] { checkpoint.linear("x", kIn, kOut); });
  }

 private:
  testing::TempFolder folder_;
};

TEST(Fp8, ScalesByBlockByRowAndForAll) {
  const Folder blocks("_scale_inv", {2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(blocks.at(127, 127), 1);
  EXPECT_EQ(blocks.at(0, 128), 2);
  EXPECT_EQ(blocks.at(128, 0), 3);
  EXPECT_EQ(blocks.at(199, 129), 4);

  std::vector<float> by_row(kOut);
  for (std::int64_t row = 0; row < kOut; ++row) by_row[static_cast<std::size_t>(row)] = static_cast<float>(row);
  const Folder rows("_scale", {kOut, 1}, by_row);
  EXPECT_EQ(rows.at(0, 5), 0);
  EXPECT_EQ(rows.at(199, 129), 199);

  EXPECT_EQ(Folder("_scale", {}, {0.5f}).at(3, 3), 0.5f);
}

TEST(Fp8, BadWeightsAreRefused) {
  EXPECT_THAT(Folder("", {}, {}).refusal(), HasSubstr("x.weight_scale_inv"));
  EXPECT_THAT(Folder("_scale_inv", {3, 2}, {1, 2, 3, 4, 5, 6}).refusal(), HasSubstr("[2, 2]"));
  EXPECT_THAT(Folder("_scale", {1}, {INFINITY}).refusal(), HasSubstr("no finite number"));
  EXPECT_THAT(Folder("_scale", {1}, {1}, 0x7F).refusal(), HasSubstr("no finite number"));
}

}  // namespace
}  // namespace pergola
