// The device's search of tiles against the processor's. Skips where there is no CUDA device.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "backend/tile_encoders.h"
#include "base/error.h"
#include "trellis/tile.h"
#include "trellis/tile_encoder.h"

namespace pergola {
namespace {

double squared_error(std::span<const float> targets, std::span<const std::uint16_t> states, Codebook codebook) {
  double sum = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double error = double{targets[i]} - double{to_float(decode_state(codebook, states[i]))};
    sum += error * error;
  }
  return sum;
}

/// Each state must hold the 16 - K newest bits of the one before it, around the seam too.
bool is_a_path(std::span<const std::uint16_t> states, int bits) {
  for (std::size_t t = 0; t < states.size(); ++t) {
    const int before = states[(t + states.size() - 1) % states.size()], now = states[t];
    if ((now >> bits) != (before & ((1 << (16 - bits)) - 1))) return false;
  }
  return true;
}

TEST(CudaTileEncoder, FindsPathsAsCheapAsTheProcessors) {
  std::unique_ptr<TileBatchEncoder> device;
  try {
    device = open_tile_encoder("cuda");
  } catch (const Error& error) {
    GTEST_SKIP() << "SKIPPED: " << error.what();
  }
  constexpr std::size_t kTiles = 6;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> targets(kTiles * kTileWeights);
  for (float& target : targets) target = normal(random);
  for (Codebook codebook : {Codebook::three_inst, Codebook::mcg, Codebook::mul1}) {
    for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
      std::vector<std::uint16_t> wanted(targets.size()), got(targets.size());
      TileEncoder(codebook, bits, std::min(cpu_features().best, Isa::avx512)).encode(targets, wanted);
      device->encode(codebook, bits, targets, got);
      for (std::size_t tile = 0; tile < kTiles; ++tile) {
        const auto part = [&](const auto& all) { return std::span(all).subspan(tile * kTileWeights, kTileWeights); };
        EXPECT_TRUE(is_a_path(part(got), bits)) << name_of(codebook) << " K=" << bits;
        EXPECT_NEAR(squared_error(part(targets), part(got), codebook),
                    squared_error(part(targets), part(wanted), codebook),
                    1e-5 * squared_error(part(targets), part(wanted), codebook))
            << name_of(codebook) << " K=" << bits;
      }
    }
  }
}

}  // namespace
}  // namespace pergola
