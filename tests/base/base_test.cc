#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/half.h"
#include "base/units.h"

namespace pergola {
namespace {

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) {
      EXPECT_TRUE(std::isnan(to_float(to_half(to_float(value)))));
    } else {
      ASSERT_EQ(to_half(to_float(value)).bits, bits);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_half(1.0f + 0x1p-11f).bits, 0x3C00);  // a tie goes to the even neighbour
  EXPECT_EQ(to_half(1.0f + 3 * 0x1p-11f).bits, 0x3C02);
  EXPECT_EQ(to_half(1.0f + 0x1.002p-11f).bits, 0x3C01);
  EXPECT_EQ(to_half(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_half(0x1p-25f).bits, 0x0000);  // half of the smallest subnormal: to even
  EXPECT_EQ(to_half(0x1.8p-25f).bits, 0x0001);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xFC00);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Units, SizesAndTimesReadLikeAPersonWritesThem) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(13.04e6), "13.0 MB");
  EXPECT_EQ(human_bytes(14.6e9), "14.6 GB");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(200), "3 min 20 s");
}

TEST(Units, ParsesSizesAndRefusesTheRest) {
  EXPECT_EQ(parse_bytes("512M", "--x"), 512'000'000u);
  EXPECT_EQ(parse_bytes("2GiB", "--x"), 2'147'483'648u);
  EXPECT_EQ(parse_bytes("4096", "--x"), 4096u);
  for (const char* bad : {"", "-1", "12Q", "G", "1e30"}) {
    EXPECT_THROW(parse_bytes(bad, "--x"), Error) << bad;
  }
}

TEST(Error, MessageNamesThePlace) {
  try {
    fail({.file = "a.safetensors", .tensor = "t", .field = "shape", .offset = 8}, "{} is wrong", 3);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a.safetensors, tensor t, field shape, byte 8: 3 is wrong");
  }
}

TEST(Error, HostileNamesStayOneShortLine) {
  const Error error("two\nlines \x1b[31m", {.tensor = std::string(399, 'x') + "\u00e9" + std::string(1000000, 'y')});
  EXPECT_EQ(std::string(error.what()), "tensor " + std::string(399, 'x') + "...: two?lines ?[31m");
}

TEST(CpuFeatures, NamesRoundTrip) {
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) EXPECT_EQ(isa_from_name(name_of(isa)), isa);
  EXPECT_FALSE(isa_from_name("sse9").has_value());
  EXPECT_FALSE(cpu_features().model.empty());
}

}  // namespace
}  // namespace pergola
