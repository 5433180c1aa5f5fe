#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/cpu_features.h"
#include "trellis/codebook.h"
#include "trellis/tile.h"

namespace pergola {

/// Raised when an encoder could give other states for the same input: part of every cache key over encoded weights.
inline constexpr int kTileEncoderVersion = 1;

/// Finds the trellis states whose decoded values are closest to given weights: a tail-biting Viterbi search over all
/// 65,536 states of each of the 256 positions, path costs in fp32. The search runs twice, first from a free start to
/// find the best node at the seam, then with both ends tied to it. An optimal path for that seam is returned; cost 2 *
/// 65,536 state evaluations a weight.
///
/// Holds work space (256 * 2^(16-K) floats for each of kTilesAtOnce tiles), so one encoder a thread. Results do not
/// depend on how tiles are batched.
class TileEncoder {
 public:
  static constexpr int kTilesAtOnce = 2;

  /// `bits` is K, 1..8; `isa` must not be above cpu_features().best.
  TileEncoder(Codebook codebook, int bits, Isa isa);
  ~TileEncoder();
  TileEncoder(const TileEncoder&) = delete;
  TileEncoder& operator=(const TileEncoder&) = delete;

  /// Encodes targets.size() / 256 tiles. `targets` holds a tile's weights in stream order (tile_position), in units of
  /// the codebook; `states` gets as many 16-bit states. Every value must be finite.
  void encode(std::span<const float> targets, std::span<std::uint16_t> states);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace pergola
