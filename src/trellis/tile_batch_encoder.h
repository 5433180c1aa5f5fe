#pragma once

#include <cstdint>
#include <span>

#include "trellis/codebook.h"

namespace pergola {

/// TileEncoder's search for many tiles at once, on a device that is only fast with hundreds of them.
class TileBatchEncoder {
 public:
  virtual ~TileBatchEncoder() = default;

  /// As TileEncoder::encode: targets.size() / 256 tiles in stream order, in units of the codebook, finite; `bits` is K,
  /// 1..8. A state may differ from TileEncoder's only where path costs agree within fp32 rounding. Not for several
  /// threads at once. Throws Error when the device fails.
  virtual void encode(Codebook codebook, int bits, std::span<const float> targets, std::span<std::uint16_t> states) = 0;
};

}  // namespace pergola
