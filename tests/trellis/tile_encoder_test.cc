#include "trellis/tile_encoder.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/half.h"

namespace pergola {
namespace {

constexpr std::array kCodebooks{Codebook::three_inst, Codebook::mcg, Codebook::mul1};

std::vector<Isa> available_isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (isa <= cpu_features().best) list.push_back(isa);
  }
  return list;
}

double mean_square_error(Codebook codebook, std::span<const float> targets, std::span<const std::uint16_t> states) {
  double sum = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double error = double{to_float(decode_state(codebook, states[i]))} - double{targets[i]};
    sum += error * error;
  }
  return sum / static_cast<double>(targets.size());
}

void expect_valid_path(std::span<const std::uint16_t> states, int bits) {
  for (std::size_t t = 0; t < 256; ++t) {
    const unsigned previous = states[(t + 255) % 256];
    ASSERT_EQ(states[t] >> bits, previous & ((1u << (16 - bits)) - 1)) << "position " << t;
  }
}

/// The input of the published encoder vector (docs/exl3.md names the source): byte sums of a linear congruential
/// generator.
std::vector<float> vector_tile() {
  std::vector<float> tile;
  std::uint32_t u = 2024;
  for (int t = 0; t < 256; ++t) {
    u = u * 1664525u + 1013904223u;
    tile.push_back((static_cast<float>((u & 255) + ((u >> 8) & 255) + ((u >> 16) & 255) + (u >> 24)) - 510.0f) /
                   128.0f);
  }
  return tile;
}

/// Mean square errors that fp16 path costs reach on vector_tile().
constexpr double kVectorErrors[3][8] = {{.38315, .09586, .02342, .006427, .001549, .000392, .000108, .0000273},
                                        {.38015, .09693, .02375, .005769, .001574, .000395, .0000967, .0000282},
                                        {.36776, .10006, .02543, .006651, .001684, .000450, .000106, .0000288}};

TEST(TileEncoder, MatchesThePublishedErrorsOnEveryWidthAndCodebook) {
  const std::vector<float> tile = vector_tile();
  for (Codebook codebook : kCodebooks) {
    for (int bits = 1; bits <= 8; ++bits) {
      TileEncoder encoder(codebook, bits, available_isas().back());
      std::vector<std::uint16_t> states(256);
      encoder.encode(tile, states);
      expect_valid_path(states, bits);
      const double published = kVectorErrors[static_cast<int>(codebook)][bits - 1];
      EXPECT_LT(mean_square_error(codebook, tile, states), published * 1.03) << name_of(codebook) << " K=" << bits;
    }
  }
}

TEST(TileEncoder, RecoversTilesThatCameFromStates) {
  for (Codebook codebook : kCodebooks) {
    for (int bits : {1, 2, 3, 4, 5, 8}) {
      std::vector<std::uint16_t> symbols(256), states(256), found(256);
      std::uint32_t u = 1;
      for (auto& symbol : symbols) symbol = static_cast<std::uint16_t>((u = u * 1664525u + 1013904223u) >> (32 - bits));
      std::vector<std::byte> packed(static_cast<std::size_t>(tile_bytes(bits)));
      pack_tile(std::span<const std::uint16_t, 256>(symbols), bits, packed.data());
      decode_tile_states(packed.data(), bits, std::span<std::uint16_t, 256>(states));
      std::vector<float> targets;
      for (std::uint16_t state : states) targets.push_back(to_float(decode_state(codebook, state)));
      TileEncoder(codebook, bits, available_isas().back()).encode(targets, found);
      EXPECT_EQ(mean_square_error(codebook, targets, found), 0.0) << name_of(codebook) << " K=" << bits;
    }
  }
}

TEST(TileEncoder, InstructionSetsAgree) {
  std::vector<float> targets = vector_tile();
  for (int t = 0; t < 512; ++t) targets.push_back(std::sin(static_cast<float>(t) * 1.7f) * 1.9f);
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<double> errors;
    for (Isa isa : available_isas()) {
      std::vector<std::uint16_t> states(targets.size());
      TileEncoder(Codebook::mul1, bits, isa).encode(targets, states);
      for (std::size_t tile = 0; tile < 3; ++tile) expect_valid_path(std::span(states).subspan(tile * 256, 256), bits);
      errors.push_back(mean_square_error(Codebook::mul1, targets, states));
      EXPECT_NEAR(errors.back(), errors.front(), errors.front() * 1e-3) << name_of(isa) << " K=" << bits;
    }
  }
}

TEST(TileEncoder, BatchingDoesNotChangeResults) {
  std::vector<float> targets = vector_tile();
  for (int t = 0; t < 512; ++t) targets.push_back(std::cos(static_cast<float>(t * t)) * 1.5f);
  TileEncoder encoder(Codebook::mcg, 4, available_isas().back());
  std::vector<std::uint16_t> together(768), alone(768);
  encoder.encode(targets, together);
  for (std::size_t tile = 0; tile < 3; ++tile) {
    encoder.encode(std::span(targets).subspan(tile * 256, 256), std::span(alone).subspan(tile * 256, 256));
  }
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace pergola
