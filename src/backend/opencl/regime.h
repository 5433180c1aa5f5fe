#pragma once

#include <array>
#include <cstdint>

#include "backend/precision.h"

namespace pergola::opencl {

/// How many activation rows a work-group multiplies at a time, and how many inputs of them it transforms at once in
/// local memory.
struct RowTile {
  int rows = 1;
  int slab = 2048;

  /// Local memory of a work-group whose inputs are split over `parts`.
  std::size_t scratch_bytes(std::int64_t parts) const;
};

inline constexpr std::array<RowTile, 3> kRowTiles{RowTile{1, 2048}, RowTile{4, 1024}, RowTile{16, 512}};

/// The tile for `rows` rows that share a matrix. A processor (`gpu` false) has vectors of 16 values: it takes 4 rows no
/// faster than 16, and is spared compiling for them.
const RowTile& row_tile(std::int64_t rows, bool gpu);

/// Steps of at most so many rows run experts pick by pick in two launches; longer ones group their picks by expert.
inline constexpr std::int64_t kDecodeRows = 4;

/// The tile for experts: by the rows that an expert gets on average.
const RowTile& expert_tile(std::int64_t picks, std::int64_t experts, bool gpu);

/// Most units of work that `picks` picks of `experts` experts make.
std::int64_t most_units(std::int64_t picks, std::int64_t experts, int tile_rows);

/// In how many parts the inputs of one work-group are split: enough to fill `lanes` work-items with `groups` groups of
/// 64, within `most_items` of a work-group and the local memory.
std::int64_t input_parts(std::int64_t lanes, std::int64_t groups, std::int64_t tile_rows, std::int64_t in_features,
                         std::size_t most_items);

/// Codebook arithmetic of kernels: ARITHMETIC of kernels/trellis.h.
enum class Arithmetic : std::uint8_t { rounded = 0, unrounded = 1 };
inline Arithmetic arithmetic_of(Precision precision) {
  return precision == Precision::exact ? Arithmetic::rounded : Arithmetic::unrounded;
}

}  // namespace pergola::opencl
