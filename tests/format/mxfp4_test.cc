#include "format/mxfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "format/allocation_peak.h"
#include "format/checkpoint.h"
#include "support/checkpoint_writer.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

TEST(Mxfp4, EveryNibbleTimesItsScale) {
  std::array<std::byte, 32> blocks{};
  for (std::size_t i = 0; i < 16; ++i) blocks[i] = static_cast<std::byte>(i | (15 - i) << 4);
  blocks[16] = std::byte{0x72};  // 1, then 6
  const std::array scales = {std::byte{128}, std::byte{0}};
  std::array<BFloat16, 64> values{};
  ASSERT_TRUE(decode_mxfp4(blocks, scales, values));
  // E2M1 by hand: sign, two exponent bits (bias 1, 0 is subnormal), one mantissa bit; doubled by the scale 2^(128-127).
  constexpr std::array<float, 8> kTwice = {0, 1, 2, 3, 4, 6, 8, 12};
  for (std::size_t i = 0; i < 16; ++i) {
    const float low = i < 8 ? kTwice[i] : -kTwice[i - 8];
    const float high = 15 - i < 8 ? kTwice[15 - i] : -kTwice[7 - i];
    EXPECT_EQ(to_float(values[2 * i]), low) << i;
    EXPECT_EQ(to_float(values[2 * i + 1]), high) << i;
  }
  EXPECT_EQ(to_float(values[32]), std::ldexp(1.0f, -127));
  EXPECT_EQ(to_float(values[33]), std::ldexp(6.0f, -127));
}

TEST(Mxfp4, ScalesBeyondTheRangeAreRefused) {
  std::array<std::byte, 16> block{};
  block[15] = std::byte{0x70};
  std::array<BFloat16, 32> values{};
  std::array scales = {std::byte{252}};
  EXPECT_TRUE(decode_mxfp4(block, scales, values));
  EXPECT_EQ(to_float(values[31]), std::ldexp(6.0f, 125));
  for (const int scale : {253, 255}) {
    scales[0] = static_cast<std::byte>(scale);
    EXPECT_FALSE(decode_mxfp4(block, scales, values));
  }
}

/// Two experts of 2 x 3 outputs (gate in even rows, up in odd ones) and 64 inputs.
struct Folder {
  explicit Folder(std::int64_t rows = 6, char scale = 127) {
    testing::TensorWriter writer;
    std::string blocks, scales;
    for (int expert = 0; expert < 2; ++expert) {
      for (int row = 0; row < 6; ++row) {
        blocks.append(32, static_cast<char>((row + 1) * 0x11));  // all values of a row are E2M1 number row + 1
        scales += {scale, static_cast<char>(scale + expert)};
      }
    }
    writer.add("experts.gate_up_proj_blocks", DType::u8, {2, rows, 2, 16}, blocks.substr(0, std::size_t(rows) * 64));
    writer.add("experts.gate_up_proj_scales", DType::u8, {2, rows, 2}, scales.substr(0, std::size_t(rows) * 4));
    writer.add_floats("experts.gate_up_proj_bias", {2, 6}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    writer.write(folder / "model.safetensors");
    testing::write_text(folder / "config.json", "{}");
  }
  testing::TempFolder folder;
};

TEST(Mxfp4, ExpertsOfACheckpoint) {
  const Folder folder;
  const Checkpoint checkpoint(folder.folder.path());
  const LinearView up = checkpoint.mxfp4_expert("experts.gate_up_proj", "experts.gate_up_proj_bias", 2, 1, 1, 2, 3, 64);
  constexpr std::array<float, 3> kValues = {1, 2, 4};  // E2M1 numbers 2, 4, 6
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(dense_element(*up.dense(), row * 64 + i), kValues[std::size_t(row)] * (i < 32 ? 1 : 2)) << row;
    EXPECT_EQ(dense_element(*up.bias, row), 7 + 2 * row);
  }
}

TEST(Mxfp4, BadCheckpointsAreRefused) {
  const auto expert = [](const Folder& folder) {
    const Checkpoint checkpoint(folder.folder.path());
    return testing::refusal(1000, [&] { checkpoint.mxfp4_expert("experts.gate_up_proj", "", 2, 0, 0, 2, 3, 64); });
  };
  EXPECT_NE(expert(Folder(4)).find("expected shape [2, 6, 2, 16]"), std::string::npos) << expert(Folder(4));
  EXPECT_NE(expert(Folder(6, static_cast<char>(255))).find("scale"), std::string::npos);
}

}  // namespace
}  // namespace pergola
