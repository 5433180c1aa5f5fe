#include "backend/cpu/packed_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/trellis_samples.h"
#include "trellis/tile.h"

namespace pergola {
namespace {

TEST(PackedMatrix, EveryTileComesBack) {
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const auto sample = testing::random_trellis(256, 384, bits, Codebook::mul1, static_cast<std::uint32_t>(bits));
    PackedMatrix matrix{256, 384, bits, Codebook::mul1, nullptr};
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    ASSERT_EQ(bytes.size(), sample.trellis.size());
    for (std::int64_t block = 0; block < matrix.blocks(); ++block) {
      pack_block(sample.view(), block, bytes.data() + block * block_bytes(256, bits));
    }
    matrix.data = bytes.data();
    std::vector<std::byte> tile(static_cast<std::size_t>(tile_bytes(bits)));
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t column = 0; column < 24; ++column) {
        unpack_tile(matrix, row, column, tile.data());
        ASSERT_EQ(std::memcmp(tile.data(), sample.trellis.data() + (row * 24 + column) * tile_bytes(bits), tile.size()),
                  0);
      }
    }
  }
}

/// The windows that packed_matrix.h describes are the states of the tile.
TEST(PackedMatrix, WindowsAreStates) {
  for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
    const auto sample = testing::random_trellis(128, 128, bits, Codebook::mul1, 11);
    std::vector<std::byte> bytes(sample.trellis.size());
    pack_block(sample.view(), 0, bytes.data());
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      for (int band = 0; band < kBandsPerChunk; ++band) {
        const auto* piece = reinterpret_cast<const std::uint32_t*>(bytes.data() + piece_offset(128, bits, strip, band));
        for (int lane = 0; lane < kLanes; ++lane) {
          std::uint16_t states[kTileWeights];
          decode_tile_states(sample.trellis.data() + (band * 8 + 2 * strip + lane / 8) * tile_bytes(bits), bits,
                             states);
          const int before = ((lane - 1) & 7) | (lane & 8);
          for (int half = 0; half < 2; ++half) {
            std::vector<std::uint32_t> words;
            const std::uint32_t* last = piece + (bits - 1) * kLanes;
            words.push_back(half == 0 ? last[before] >> 16 : last[lane] & 0xFFFF);
            for (int i = 0; i < bits; ++i) words.push_back(piece[i * kLanes + lane] >> (16 * half) & 0xFFFF);
            for (int t = 0; t < kSteps; ++t) {
              const int i = window_index(bits, t);
              const std::uint32_t state = (words[i] << 16 | words[i + 1]) >> window_shift(bits, t) & 0xFFFF;
              const int row = step_row(t) + 4 * half;
              ASSERT_EQ(pair_row(step_pair(t)), step_row(t));
              const int column = lane_column(lane, step_half(t)) & 15;
              ASSERT_EQ(state, states[tile_position(row, column)]) << bits << " step " << t;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pergola
