#pragma once

#include <cstddef>
#include <cstdint>

#include "trellis/linear_view.h"

namespace pergola {

// A trellis is repacked once, when it is bound, into "halfword planes": the same number of bytes, the same bits, in an
// order that vector registers read without permutes and that a thread reads from memory front to back.
//
// A strip is 32 columns (two neighbouring tiles) of one 16-row band. Its 16 lanes are the column pairs (c, c + 8):
// lanes 0..7 of the left tile, 8..15 of the right one. A lane owns 32 weights, stream positions 32g..32g+31 of its
// tile, whose bits are 2K halfwords h_0..h_{2K-1} in stream order. Plane i (0 <= i < K) holds for every lane the dword
// h_i | h_{K+i} << 16. So the low halves of a lane run through local positions 0..15 and the high halves
// through 16..31, which are the same columns four rows further down.
//
// Local position ("step") T of the low half is row step_row(T), columns lane_column(lane, step_half(T)); the high half
// is row + 4. The 16-bit state of step T lies across halfwords window_index(K, T) - 1 and window_index(K, T) of its
// half, window_shift(K, T) bits from the right. Before plane 0 stands the "previous" plane: low half of lane g = high
// half of plane K-1 of the lane before (cyclic within the tile's eight lanes), high half of lane g = low half of plane
// K-1 of lane g itself.
//
// Order in memory: [block of 128 columns][stream 0..1][chunk of 128 rows][strip 0..1][band 0..7][plane 0..K-1][lane
// 0..15]. A block is one block of the output Hadamard transform; a stream is 64 of its columns. Two streams are read
// side by side because two sequential reads get more out of a core's memory prefetchers than one.

inline constexpr std::int64_t kBlockColumns = 128;
inline constexpr std::int64_t kStreamColumns = 64;
inline constexpr std::int64_t kStripColumns = 32;
inline constexpr std::int64_t kChunkRows = 128;
inline constexpr std::int64_t kBandRows = 16;
inline constexpr int kBandsPerChunk = 8;
inline constexpr int kStripsPerBlock = 4;
inline constexpr int kLanes = 16;
inline constexpr int kSteps = 16;

/// Row in the band of the low half of step T, which is made of bits r0, r3, c3, r1.
constexpr int step_row(int t) {
  return (t & 1) + 8 * ((t >> 1) & 1) + 2 * (t >> 3);
}

/// 0 if step T is the column c of the lane's pair, 1 if it is c + 8.
constexpr int step_half(int t) {
  return (t >> 2) & 1;
}

/// Running number 0..7 of the row pair (step_row, step_row + 4) of step T: kernels lay out activations in this order.
constexpr int step_pair(int t) {
  return (t & 3) + 4 * (t >> 3);
}

/// The row of pair j: step_row of the steps with step_pair(T) == j.
constexpr int pair_row(int j) {
  return (j & 1) + 8 * ((j >> 1) & 1) + 2 * (j >> 2);
}

/// Column in the strip of a lane's pair half.
constexpr int lane_column(int lane, int half) {
  return 16 * (lane >> 3) + (lane & 7) + 8 * half;
}

/// The halfword (0..K-1) in which the window of step T ends.
constexpr int window_index(int bits, int t) {
  return ((t + 1) * bits - 1) / 16;
}

/// Bits of that halfword to the right of the window; 0: the window is the whole halfword.
constexpr int window_shift(int bits, int t) {
  return 16 * (window_index(bits, t) + 1) - (t + 1) * bits;
}

/// Bytes of one strip of one band.
constexpr std::int64_t piece_bytes(int bits) {
  return std::int64_t{64} * bits;
}

/// Bytes of a block of 128 columns.
constexpr std::int64_t block_bytes(std::int64_t in_features, int bits) {
  return in_features * kBlockColumns / 8 * bits;
}

/// Byte offset in a block of (strip 0..3 of the block, band of the matrix).
constexpr std::int64_t piece_offset(std::int64_t in_features, int bits, int strip, std::int64_t band) {
  const std::int64_t chunks = in_features / kChunkRows;
  const std::int64_t chunk = band / kBandsPerChunk;
  return ((((strip >> 1) * chunks + chunk) * 2 + (strip & 1)) * kBandsPerChunk + band % kBandsPerChunk) *
         piece_bytes(bits);
}

/// A repacked matrix. Does not own its bytes, which are 64-byte aligned. Widths are the stored ones, multiples of 128.
struct PackedMatrix {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  int bits = 0;
  Codebook codebook = Codebook::three_inst;
  const std::byte* data = nullptr;

  std::int64_t blocks() const { return out_features / kBlockColumns; }
  std::int64_t bytes() const { return blocks() * block_bytes(in_features, bits); }
  const std::byte* block(std::int64_t index) const { return data + index * block_bytes(in_features, bits); }
};

/// Repacks column block `block` of a trellis into `out` (block_bytes long). Blocks are independent: threads may each
/// take some.
void pack_block(const TrellisView& trellis, std::int64_t block, std::byte* out);

/// The inverse of pack_block for one tile, in checkpoint order: for tests and tools.
void unpack_tile(const PackedMatrix& matrix, std::int64_t tile_row, std::int64_t tile_column, std::byte* tile);

}  // namespace pergola
