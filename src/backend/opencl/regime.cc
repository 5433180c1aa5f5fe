#include "backend/opencl/regime.h"

#include <algorithm>
#include <stdexcept>

namespace pergola::opencl {

namespace {

constexpr std::int64_t kLanes = 64;
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMostPartRows = 64;  // partial sums of 32 KB

}  // namespace

const Variant& find_variant(int rows, Arithmetic arithmetic, int bytes) {
  const auto found = std::find_if(kVariants.begin(), kVariants.end(), [&](const Variant& v) {
    return v.rows == rows && v.arithmetic == arithmetic && v.bytes == bytes;
  });
  if (found == kVariants.end()) throw std::logic_error("no such kernel variant");
  return *found;
}

RowTiles::RowTiles(Precision precision, bool matrix_units, bool gpu) {
  const auto add = [&](int rows, Arithmetic arithmetic, int bytes = 1) {
    variants_[count_++] = &find_variant(rows, arithmetic, bytes);
  };
  const Arithmetic plain = precision == Precision::exact  ? Arithmetic::rounded
                           : precision == Precision::int8 ? Arithmetic::int8
                                                          : Arithmetic::unrounded;
  add(1, plain);
  if (matrix_units && precision != Precision::exact) {
    const int bytes = precision == Precision::int8 ? 1 : 2;
    add(8, Arithmetic::matrix, bytes);
    add(16, Arithmetic::matrix, bytes);
    return;
  }
  if (gpu) add(4, plain);
  add(16, plain);
}

std::size_t RowTiles::index_for(std::int64_t rows) const {
  std::size_t index = 0;
  while (index + 1 < count_ && rows > variants_[index]->rows) ++index;
  return index;
}

std::size_t scratch_bytes(const Variant& variant, std::int64_t parts) {
  const std::int64_t slab =
      std::int64_t{variant.slab} * variant.rows * (variant.arithmetic == Arithmetic::matrix ? variant.bytes : 1);
  return static_cast<std::size_t>(std::max(slab, parts * variant.rows * kBlock)) * sizeof(float);
}

std::size_t expert_tile(const RowTiles& tiles, std::int64_t picks, std::int64_t experts) {
  return std::max<std::size_t>(1, tiles.index_for((picks + experts - 1) / experts));
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
