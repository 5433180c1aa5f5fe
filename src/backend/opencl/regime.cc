#include "backend/opencl/regime.h"

#include <algorithm>

namespace pergola::opencl {

namespace {

constexpr std::int64_t kLanes = 64;
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMostPartRows = 64;  // partial sums of 32 KB

}  // namespace

std::size_t RowTile::scratch_bytes(std::int64_t parts) const {
  return static_cast<std::size_t>(std::max<std::int64_t>(std::int64_t{slab} * rows, parts * rows * kBlock)) *
         sizeof(float);
}

const RowTile& row_tile(std::int64_t rows, bool gpu) {
  for (const RowTile& tile : kRowTiles)
    if (rows <= tile.rows && (gpu || tile.rows != kRowTiles[1].rows)) return tile;
  return kRowTiles.back();
}

const RowTile& expert_tile(std::int64_t picks, std::int64_t experts, bool gpu) {
  return picks / experts > kRowTiles[1].rows || !gpu ? kRowTiles[2] : kRowTiles[1];
}

std::int64_t most_units(std::int64_t picks, std::int64_t experts, int tile_rows) {
  return std::min(picks, experts + picks / tile_rows);
}

std::int64_t input_parts(std::int64_t lanes, std::int64_t groups, std::int64_t tile_rows, std::int64_t in_features,
                         std::size_t most_items) {
  const std::int64_t most = std::min(
      {kMostPartRows / tile_rows, std::int64_t{16}, static_cast<std::int64_t>(most_items) / kLanes, in_features / 16});
  std::int64_t parts = 1;
  while (parts * 2 <= most && parts * groups * kLanes < lanes) parts *= 2;
  return parts;
}

}  // namespace pergola::opencl
