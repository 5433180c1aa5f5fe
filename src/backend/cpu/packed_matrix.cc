#include "backend/cpu/packed_matrix.h"

#include <cassert>
#include <cstring>

#include "trellis/tile.h"

namespace pergola {
namespace {

/// Planes of the eight lanes of one tile. `tile` has 8 * K words of any alignment; plane i of lane g goes to out[i *
/// kLanes + g].
template <int K>
void pack_tile_lanes(const std::byte* tile, std::uint32_t* out) {
  for (int lane = 0; lane < 8; ++lane, tile += 4 * K) {
    // Stream order is the high half of a word, then its low half.
    std::uint32_t words[K];
    std::memcpy(words, tile, sizeof words);
    std::uint32_t halves[2 * K];
    for (int i = 0; i < K; ++i) {
      halves[2 * i] = words[i] >> 16;
      halves[2 * i + 1] = words[i] & 0xFFFFu;
    }
    for (int i = 0; i < K; ++i) out[i * kLanes + lane] = halves[i] | halves[K + i] << 16;
  }
}

template <int K>
void pack_block_bits(const TrellisView& trellis, std::int64_t block, std::byte* out) {
  const std::int64_t row_bytes = trellis.out_features / kTileSide * tile_bytes(K);
  const std::byte* source = trellis.trellis.data() + block * (kBlockColumns / kTileSide) * tile_bytes(K);
  for (std::int64_t band = 0; band < trellis.in_features / kBandRows; ++band, source += row_bytes) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      auto* piece = reinterpret_cast<std::uint32_t*>(out + piece_offset(trellis.in_features, K, strip, band));
      pack_tile_lanes<K>(source + 2 * strip * tile_bytes(K), piece);
      pack_tile_lanes<K>(source + (2 * strip + 1) * tile_bytes(K), piece + 8);
    }
  }
}

}  // namespace

void pack_block(const TrellisView& trellis, std::int64_t block, std::byte* out) {
  assert(trellis.in_features % kChunkRows == 0 && trellis.out_features % kBlockColumns == 0);
  assert(block >= 0 && block < trellis.out_features / kBlockColumns);
  switch (trellis.bits) {
    case 1:
      return pack_block_bits<1>(trellis, block, out);
    case 2:
      return pack_block_bits<2>(trellis, block, out);
    case 3:
      return pack_block_bits<3>(trellis, block, out);
    case 4:
      return pack_block_bits<4>(trellis, block, out);
    case 5:
      return pack_block_bits<5>(trellis, block, out);
    case 6:
      return pack_block_bits<6>(trellis, block, out);
    case 7:
      return pack_block_bits<7>(trellis, block, out);
    case 8:
      return pack_block_bits<8>(trellis, block, out);
    default:
      assert(!"K is 1..8");
  }
}

void unpack_tile(const PackedMatrix& matrix, std::int64_t tile_row, std::int64_t tile_column, std::byte* tile) {
  constexpr std::int64_t kTilesPerBlock = kBlockColumns / kTileSide;
  const auto strip = static_cast<int>(tile_column % kTilesPerBlock / 2);
  const auto* piece = reinterpret_cast<const std::uint32_t*>(
      matrix.block(tile_column / kTilesPerBlock) + piece_offset(matrix.in_features, matrix.bits, strip, tile_row));
  piece += 8 * (tile_column % 2);
  for (int lane = 0; lane < 8; ++lane) {
    for (int i = 0; i < 2 * matrix.bits; ++i) {
      const std::uint32_t plane = piece[i % matrix.bits * kLanes + lane];
      const auto half = static_cast<std::uint16_t>(i < matrix.bits ? plane : plane >> 16);
      // Halfword i of the stream is stored at i ^ 1: the halves of a word are swapped.
      std::memcpy(tile + 2 * (2 * matrix.bits * lane + (i ^ 1)), &half, sizeof half);
    }
  }
}

}  // namespace pergola
