#include "trellis/tile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <sstream>
#include <vector>

#include "support/crc32.h"
#include "support/trellis_samples.h"
#include "trellis/decode.h"

namespace pergola {
namespace {

using testing::crc32;

/// CRC of the 16x16 row-major binary16 matrix, the first four values of row 0, the last value of row 15.
struct DecodedTile {
  std::uint32_t crc;
  std::uint16_t first[4];
  double last;
};

struct TileVector {
  int bits;
  std::uint32_t packed_crc, states_crc;
  const char* first_bytes;
  const char* last_bytes;
  std::uint16_t states[10];
  std::uint16_t last_state;
  DecodedTile decoded[3];  // in the order of Codebook
};

constexpr TileVector kTiles[] = {
    {1,
     0x39B1CDEF,
     0x14F18888,
     "66 B0 4D 33 09 CA C8 57 B0 E6 E3 CC B2 CE 87 C8",
     "D5 24 0B AA FA 37 75 03",
     {0x6FF4, 0xDFE8, 0xBFD1, 0x7FA3, 0xFF46, 0xFE8C, 0xFD19, 0xFA33, 0xF466, 0xE8CD},
     0x37FA,
     {{0x552E69A3, {0x3ECE, 0x3D18, 0xBE94, 0x2D0A}, -0.7792969},
      {0x0D430E2A, {0x2FF0, 0x3A2C, 0xB190, 0x9900}, -0.7255859},
      {0x85F4657A, {0x3905, 0x3CEB, 0xB8E3, 0xBCC5}, 1.175781}}},
    {2,
     0xA0440D22,
     0x73E0DD01,
     "B3 25 1E 1A 7C 29 01 DA 84 F1 7E 76 D2 44 CC B4",
     "76 3A 1F 54 D9 FF 6A 1A",
     {0xFF64, 0xFD91, 0xF646, 0xD91A, 0x6468, 0x91A1, 0x4687, 0x1A1E, 0x6878, 0xA1E2},
     0xFFD9,
     {{0x84746D65, {0xBA9A, 0xB53A, 0x3C06, 0xBE8C}, 0.5703125},
      {0x1BF049B7, {0x3658, 0xB9BD, 0x2CE0, 0xB728}, 0.9345703},
      {0xADD00804, {0x3547, 0x3A28, 0xBE9D, 0x3851}, -0.7866211}}},
    {3,
     0xBC21CB8B,
     0x06B5979B,
     "15 B4 50 2A C2 CA 8F 39 B9 35 36 02 FC FD C7 5D",
     "57 2E 9C C5 A2 EE DB 6C",
     {0x7511, 0xA88A, 0x4454, 0x22A5, 0x1528, 0xA942, 0x4A16, 0x50B4, 0x85A0, 0x2D05},
     0xEEA2,
     {{0x0581428D, {0xB994, 0xB67C, 0x3996, 0xBD14}, 1.972656},
      {0x9E70DFE0, {0x3C6A, 0x3CB0, 0xBD92, 0x4030}, -0.4555664},
      {0x677DAA74, {0x3958, 0xB478, 0x4158, 0xAA4C}, -0.6513672}}},
    {4,
     0x2F1AF67C,
     0x1BF0EBC3,
     "C8 05 8B 35 3F 9D 46 0A 15 31 A8 D5 E2 4C 96 2B",
     "A9 6B 9A 36 84 F5 FC CC",
     {0x5843, 0x8435, 0x4358, 0x358B, 0x58B0, 0x8B05, 0xB05C, 0x05C8, 0x5C80, 0xC80A},
     0xF584,
     {{0xE56153D2, {0x38F1, 0x39F6, 0xBD3C, 0x3C5B}, -0.6630859},
      {0xDFEC96DB, {0xB59C, 0xB5A0, 0x3C81, 0xBD1D}, 0.8208008},
      {0x0BF3BA42, {0x31CA, 0xAF7B, 0x3C68, 0x31CA}, -0.875}}},
    {5,
     0x8BCC45CB,
     0x23E5B772,
     "AF 60 E1 3A D9 10 05 11 AB DA FF 68 25 4A 0C 13",
     "C6 93 5E 56 28 2A 9F 3F",
     {0x4507, 0xA0EB, 0x1D70, 0xAE16, 0xC2C1, 0x582B, 0x0578, 0xAF11, 0xE220, 0x4414},
     0x2A28,
     {{0x3AF58E5A, {0x374A, 0xBC52, 0x3F8C, 0x3EBE}, 0.515625},
      {0x0D8882B6, {0xC05E, 0xB932, 0x3CAE, 0x2700}, 0.6313477},
      {0x75C94DFD, {0xB944, 0x3625, 0xB780, 0xB09B}, -0.4282227}}},
    {6,
     0x5F5AEA55,
     0x19B6948C,
     "0D 2D 78 3D 84 06 63 7C FE 53 97 1B 34 E2 4A DD",
     "1F C7 27 EA D0 58 F1 B3",
     {0x340F, 0x03D7, 0xF5E0, 0x782D, 0x0B43, 0xD0D7, 0x35F1, 0x7C63, 0x18C1, 0x3068},
     0x58D0,
     {{0x233AC6DF, {0xBD4D, 0x3633, 0x385A, 0xC05C}, -0.7949219},
      {0x0B31F276, {0xBC30, 0x3FB3, 0x38EA, 0xB88E}, -1.176758},
      {0xCFC043FF, {0x2CA6, 0xBD95, 0x3B9E, 0x3982}, -1.125}}},
    {7,
     0x5812EF80,
     0x5AD18E20,
     "A0 05 BE 3C 05 C7 F1 CB 7A 69 03 45 A6 DC 7D CF",
     "EE 8F C7 4F 20 E3 2A 7F",
     {0x901E, 0x0F2F, 0x97C0, 0xE05A, 0x2D06, 0x832F, 0x97E3, 0xF1C7, 0xE382, 0xC151},
     0xE320,
     {{0x7C203779, {0x3C70, 0xBA73, 0x3992, 0x3CDB}, -0.609375},
      {0xF8B5716C, {0xB7DC, 0xBC5E, 0x1900, 0xBEA3}, 3.613281},
      {0xE938F50E, {0x3827, 0xBD65, 0x37C4, 0xB780}, -1.65332}}},
    {8,
     0x8E3BD803,
     0xB8FAD701,
     "B4 81 5E 3C 8E C6 5E 0C 6C 40 A3 04 FB 3C D6 97",
     "CE FB C7 C6 40 8D 57 F2",
     {0x403C, 0x3C5E, 0x5E81, 0x81B4, 0xB40C, 0x0C5E, 0x5EC6, 0xC68E, 0x8E04, 0x04A3},
     0x8D40,
     {{0x8B6F8182, {0x3B0E, 0xBC6A, 0xBD48, 0x3254}, 0.9980469},
      {0xA78030CF, {0xBFD0, 0xAE90, 0x3DAD, 0xC112}, -2.03125},
      {0x88A05187, {0xBF0C, 0xA3DC, 0xB89E, 0x3E31}, -1.152344}}},
};

struct LayerVector {
  int bits;
  std::uint32_t trellis_crc;
  std::uint32_t inner_crc[3];
};

constexpr LayerVector kLayers[] = {
    {1, 0xDA8D71B5, {0xF6E1AF6E, 0x62E6E466, 0x3478A785}}, {2, 0xCE61C4BB, {0xC2D5ADC8, 0x2DFA1607, 0x757C36FC}},
    {3, 0x5DA57EC6, {0x7A617093, 0x81677B01, 0xFA3B5F89}}, {4, 0xB5F0C48E, {0x9D3E1F04, 0x3E57CDF9, 0x0146DAD6}},
    {5, 0x066BB94F, {0x77FFB4DE, 0x8320ED67, 0x0E44FD74}}, {6, 0xFDD52CA8, {0xCE0E5A44, 0xCF66E6A3, 0xF1C67AB3}},
    {7, 0x85867121, {0x095A4AFA, 0xEDD5C8B4, 0xC0E5D8A4}}, {8, 0x75DE6F85, {0xE8374E44, 0xF52B95C5, 0xF1960BF8}},
};

constexpr Codebook kCodebooks[] = {Codebook::three_inst, Codebook::mcg, Codebook::mul1};

std::vector<std::byte> bytes_from_hex(const char* text) {
  std::istringstream in(text);
  std::vector<std::byte> bytes;
  for (unsigned value = 0; in >> std::hex >> value;) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

/// One tile packed from the format's symbol generator.
std::vector<std::byte> sample_tile(int bits) {
  testing::SymbolGenerator generator;
  std::uint16_t symbols[kTileWeights];
  for (std::uint16_t& symbol : symbols) symbol = generator.next(bits);
  std::vector<std::byte> tile(static_cast<std::size_t>(tile_bytes(bits)));
  pack_tile(symbols, bits, tile.data());
  return tile;
}

TEST(Tile, PositionsAndTheirInverse) {
  bool seen[16][16] = {};
  for (int t = 0; t < kTileWeights; ++t) {
    EXPECT_EQ(tile_position(tile_row(t), tile_column(t)), t);
    EXPECT_FALSE(seen[tile_row(t)][tile_column(t)]);
    seen[tile_row(t)][tile_column(t)] = true;
  }
  EXPECT_EQ(tile_position(8, 9), 38);
  EXPECT_EQ(tile_position(15, 8), 31);
  EXPECT_EQ(tile_position(3, 3), 105);
}

TEST(Tile, PackedBytesAndStates) {
  for (const TileVector& vector : kTiles) {
    const std::vector<std::byte> tile = sample_tile(vector.bits);
    EXPECT_EQ(crc32(tile.data(), tile.size()), vector.packed_crc) << vector.bits;
    const auto first = bytes_from_hex(vector.first_bytes);
    const auto last = bytes_from_hex(vector.last_bytes);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), tile.begin())) << vector.bits;
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), tile.rbegin())) << vector.bits;
    std::uint16_t states[kTileWeights];
    decode_tile_states(tile.data(), vector.bits, states);
    EXPECT_EQ(crc32(states, sizeof states), vector.states_crc) << vector.bits;
    EXPECT_TRUE(std::equal(std::begin(vector.states), std::end(vector.states), states)) << vector.bits;
    EXPECT_EQ(states[255], vector.last_state) << vector.bits;
  }
}

TEST(Tile, WorkedExample) {
  const std::vector<std::byte> tile = sample_tile(3);
  std::uint32_t words[24];
  std::memcpy(words, tile.data(), sizeof words);
  EXPECT_EQ(words[0], 0x2A50B415u);
  EXPECT_EQ(words[23], 0x6CDBEEA2u);
  std::uint16_t states[kTileWeights];
  decode_tile_states(tile.data(), 3, states);
  EXPECT_EQ(to_float(decode_state(Codebook::three_inst, states[0])), -0.697265625f);
  EXPECT_EQ(to_float(decode_state(Codebook::three_inst, states[1])), 1.060546875f);
  EXPECT_EQ(to_float(decode_state(Codebook::three_inst, states[tile_position(0, 1)])), -0.4052734375f);
}

TEST(Tile, TwoBitTileAsStored) {
  constexpr std::uint16_t stored[] = {0x25B3, 0x1A1E, 0x297C, 0xDA01, 0xF184, 0x767E, 0x44D2, 0xB4CC,
                                      0xB94E, 0xF0F5, 0xDF54, 0xA86D, 0x843A, 0xA5D1, 0x8F08, 0xB5E9,
                                      0xB6DE, 0x952E, 0x15D0, 0x82C3, 0xE989, 0xA948, 0x2026, 0x6FF7,
                                      0x40DA, 0xDD89, 0xB623, 0x5C75, 0x3A76, 0x541F, 0xFFD9, 0x1A6A};
  EXPECT_EQ(std::memcmp(sample_tile(2).data(), stored, sizeof stored), 0);
}

TEST(Tile, DecodedValues) {
  for (const TileVector& vector : kTiles) {
    const std::vector<std::byte> tile = sample_tile(vector.bits);
    for (const Codebook codebook : kCodebooks) {
      const DecodedTile& expected = vector.decoded[static_cast<int>(codebook)];
      const auto inner = decode_inner({16, 16, vector.bits, codebook, tile, {}, {}});
      EXPECT_EQ(crc32(inner.data(), 2 * inner.size()), expected.crc) << vector.bits << name_of(codebook);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(inner[i].bits, expected.first[i]);
      EXPECT_NEAR(to_float(inner[255]), expected.last, 1e-6 * std::abs(expected.last));
    }
  }
}

TEST(Tile, LayerOfManyTiles) {
  for (const LayerVector& vector : kLayers) {
    for (const Codebook codebook : kCodebooks) {
      const auto layer = testing::example_trellis(128, 128, vector.bits, codebook);
      EXPECT_EQ(crc32(layer.trellis.data(), layer.trellis.size()), vector.trellis_crc) << vector.bits;
      const auto inner = decode_inner(layer.view());
      EXPECT_EQ(crc32(inner.data(), 2 * inner.size()), vector.inner_crc[static_cast<int>(codebook)])
          << vector.bits << name_of(codebook);
    }
  }
}

TEST(Tile, EveryBitPatternRoundTrips) {
  std::mt19937 generator(7);
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::byte> tile(static_cast<std::size_t>(tile_bytes(bits)) + 1);
      for (std::byte& byte : tile) byte = static_cast<std::byte>(generator());
      std::byte* odd = tile.data() + 1;  // tiles start at any alignment
      std::uint16_t states[kTileWeights];
      decode_tile_states(odd, bits, states);
      for (int t = 0; t < kTileWeights; ++t) {  // neighbours overlap in all but K bits, around the end too
        ASSERT_EQ(states[t] >> bits, states[(t + 255) % 256] & ((1u << (16 - bits)) - 1));
      }
      std::vector<std::byte> packed(static_cast<std::size_t>(tile_bytes(bits)));
      pack_tile(states, bits, packed.data());
      ASSERT_EQ(std::memcmp(packed.data(), odd, packed.size()), 0) << bits;
    }
  }
}

}  // namespace
}  // namespace pergola
