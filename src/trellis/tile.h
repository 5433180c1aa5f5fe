#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pergola {

/// A tile is 16 inputs x 16 outputs. Its 256 weights are stored as a cyclic stream of 256 * K bits in 8 * K
/// little-endian 32-bit words; stream bit b is bit 31 - (b & 31) of word b >> 5. The state of position t is the 16 bits
/// that end with the K bits of its own symbol (docs/exl3.md, "The trellis").
inline constexpr int kTileSide = 16;
inline constexpr int kTileWeights = 256;

/// Smallest and largest K, bits per weight.
inline constexpr int kMinBits = 1;
inline constexpr int kMaxBits = 8;

/// Bytes of one packed tile.
constexpr std::int64_t tile_bytes(int bits) {
  return std::int64_t{32} * bits;
}

/// Row (input feature inside the tile) of stream position t, 0 <= t < 256.
constexpr int tile_row(int t) {
  return 2 * ((t >> 3) & 3) + (t & 1) + 8 * ((t >> 1) & 1);
}

/// Column (output feature inside the tile) of stream position t.
constexpr int tile_column(int t) {
  return (t >> 5) + 8 * ((t >> 2) & 1);
}

/// Stream position of (row, column): the inverse of tile_row and tile_column.
constexpr int tile_position(int row, int column) {
  return 32 * (column & 7) + 8 * ((row >> 1) & 3) + 4 * (column >> 3) + 2 * (row >> 3) + (row & 1);
}

/// The 256 states of a packed tile in stream order. `tile` points at tile_bytes(bits) bytes of any alignment.
void decode_tile_states(const std::byte* tile, int bits, std::span<std::uint16_t, kTileWeights> states);

/// Packs a tile from its symbols, or from states whose low `bits` bits are the symbols. Any sequence of symbols is a
/// valid tile.
void pack_tile(std::span<const std::uint16_t, kTileWeights> symbols, int bits, std::byte* tile);

}  // namespace pergola
