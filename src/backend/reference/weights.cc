#include "backend/reference/weights.h"

#include <cassert>
#include <cstring>

#include "base/half.h"
#include "trellis/decode.h"
#include "trellis/tile.h"

namespace pergola::reference {

void read_dense(const DenseView& view, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = dense_element(view, first + i);
}

void read_halves(std::span<const std::byte> bytes, std::int64_t first, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, bytes.data() + (first + i) * 2, 2);
    out[i] = to_float(half);
  }
}

void decode_columns(const TrellisView& view, std::int64_t first, std::int64_t count, float* out) {
  assert(first % kTileSide == 0 && count % kTileSide == 0 && first + count <= view.out_features);
  const std::span<const float, 65536> values = codebook_table(view.codebook);
  const std::int64_t tiles_across = view.out_features / kTileSide;
  std::uint16_t states[kTileWeights];
  for (std::int64_t kt = 0; kt < view.in_features / kTileSide; ++kt) {
    for (std::int64_t nt = first / kTileSide; nt < (first + count) / kTileSide; ++nt) {
      decode_tile_states(view.trellis.data() + (kt * tiles_across + nt) * tile_bytes(view.bits), view.bits, states);
      float* tile = out + (nt * kTileSide - first) * view.in_features + kt * kTileSide;
      for (int t = 0; t < kTileWeights; ++t) tile[tile_column(t) * view.in_features + tile_row(t)] = values[states[t]];
    }
  }
}

}  // namespace pergola::reference
