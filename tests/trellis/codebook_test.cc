#include "trellis/codebook.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/crc32.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

struct StateVector {
  std::uint16_t state;
  std::uint16_t bits;
};

constexpr StateVector kStateVectors[3][22] = {
    {{0x0000, 0x3A25}, {0x0001, 0xBB5B}, {0x0002, 0x3B74}, {0x0003, 0x34B6}, {0x0007, 0xB906}, {0x0008, 0x392A},
     {0x000F, 0xBB6A}, {0x0010, 0x3C44}, {0x00FF, 0x3CD1}, {0x0100, 0x3C3F}, {0x03FF, 0x3708}, {0x0FFF, 0x3BA9},
     {0x1000, 0x3560}, {0x1234, 0xC066}, {0x3039, 0x3C59}, {0x5555, 0xC139}, {0x7FFF, 0xBA96}, {0x8000, 0xB7F8},
     {0xAAAA, 0xBB35}, {0xBEEF, 0x424B}, {0xCAFE, 0xC130}, {0xFFFF, 0xB110}},
    {{0x0000, 0x3F60}, {0x0001, 0x304E}, {0x0002, 0xBA13}, {0x0003, 0x3AB8}, {0x0007, 0xBC71}, {0x0008, 0x2FE0},
     {0x000F, 0xB8FC}, {0x0010, 0xB840}, {0x00FF, 0xBD26}, {0x0100, 0xBAF0}, {0x03FF, 0xC393}, {0x0FFF, 0xC076},
     {0x1000, 0xBEFF}, {0x1234, 0x3E0F}, {0x3039, 0xB682}, {0x5555, 0xBCE6}, {0x7FFF, 0x4172}, {0x8000, 0xB915},
     {0xAAAA, 0xBFBA}, {0xBEEF, 0xC293}, {0xCAFE, 0xBFAA}, {0xFFFF, 0x3ACD}},
    {{0x0000, 0xC2E8}, {0x0001, 0x3921}, {0x0002, 0xB72D}, {0x0003, 0x3239}, {0x0007, 0xB997}, {0x0008, 0xAC04},
     {0x000F, 0x3BBA}, {0x0010, 0xAFEA}, {0x00FF, 0x3AB3}, {0x0100, 0xB3DB}, {0x03FF, 0x3F46}, {0x0FFF, 0x385F},
     {0x1000, 0xB84B}, {0x1234, 0xB89E}, {0x3039, 0xBDA3}, {0x5555, 0x35B6}, {0x7FFF, 0x3FCA}, {0x8000, 0xBAF2},
     {0xAAAA, 0x39B9}, {0xBEEF, 0x3124}, {0xCAFE, 0xBF81}, {0xFFFF, 0xB936}},
};

constexpr Codebook kCodebooks[] = {Codebook::three_inst, Codebook::mcg, Codebook::mul1};

TEST(Codebook, ListedStates) {
  for (const Codebook codebook : kCodebooks) {
    for (const StateVector& vector : kStateVectors[static_cast<int>(codebook)]) {
      EXPECT_EQ(decode_state(codebook, vector.state).bits, vector.bits)
          << name_of(codebook) << " state " << vector.state;
    }
  }
}

TEST(Codebook, AllStates) {
  constexpr std::uint32_t crcs[] = {0x4C83D524, 0xD2D13C52, 0x2BDF05C5};
  for (const Codebook codebook : kCodebooks) {
    std::vector<std::uint16_t> values;
    for (std::uint32_t state = 0; state < 65536; ++state) {
      values.push_back(decode_state(codebook, static_cast<std::uint16_t>(state)).bits);
      ASSERT_EQ(codebook_table(codebook)[state], to_float(Half{values.back()}));
    }
    EXPECT_EQ(testing::crc32(values.data(), 2 * values.size()), crcs[static_cast<int>(codebook)]) << name_of(codebook);
  }
}

TEST(Codebook, Mul1ByByteSum) {
  constexpr StateVector spots[] = {{0, 0xC2E8},   {1, 0xC2E5},   {2, 0xC2E1},    {100, 0xC18E},
                                   {255, 0xBEE9}, {256, 0xBEE2}, {400, 0xB9F8},  {509, 0xA065},
                                   {510, 0x9770}, {511, 0x1D12}, {512, 0x2200},  {600, 0x38DC},
                                   {765, 0x3EE5}, {900, 0x4146}, {1019, 0x42E3}, {1020, 0x42E6}};
  for (const StateVector& spot : spots) EXPECT_EQ(mul1_value(spot.state).bits, spot.bits) << spot.state;
  std::vector<std::uint16_t> values;
  for (std::uint32_t sum = 0; sum <= 1020; ++sum) values.push_back(mul1_value(sum).bits);
  EXPECT_EQ(testing::crc32(values.data(), 2 * values.size()), 0x82000E02u);
}

}  // namespace
}  // namespace pergola
