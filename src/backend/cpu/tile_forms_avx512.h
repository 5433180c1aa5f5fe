#pragma once

// For the AVX-512 and AMX files only (functions here have internal linkage: see trellis_avx512.h).

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"

namespace pergola {

// --- tile forms: rows as the left operand of AMX tile products
// -----------------------------------------------------------------------------
//
// A tile is 16 lines of 64 bytes. One step of a product takes one line of every row, which holds 16, 32 or 64 inputs.
// Rows are split into parts (high and low bytes, say), a line each; the lines of a row are neighbours in a tile. Order
// in memory: [chunk of inputs][tile][step][line][64 bytes], then a TileRow for every row. Forms for few rows have one
// chunk. Lines behind the last row are zeros.

/// What else a kernel needs of a row. A row's integer is 256 * high + low; forms with one part have no high.
struct TileRow {
  float scale = 0.0f;
  std::int32_t low_sum = 0;
  std::int32_t high_sum = 0;
  std::int32_t unused = 0;
};

/// Shape of a tile form: `step` inputs a line, `parts` lines a row, chunks of `chunk` inputs (0: all).
struct TileShape {
  int step;
  int parts;
  int chunk;
};

inline constexpr int kTileLines = 16;
inline constexpr int kLineBytes = 64;
inline constexpr int kTileBytes = kTileLines * kLineBytes;

/// Up to this many rows, decoding weights takes longer than multiplying with them.
inline constexpr std::int64_t kSpreadRows = 96;

/// Inputs of a chunk in a form for many rows. For less than a hundred rows the decoded weights of a strip (32 columns)
/// and the rows of two tiles stay in the first-level cache; beyond, sums should seldom be stored.
static constexpr std::int64_t chunk_inputs(std::int64_t in_features, std::int64_t rows) {
  const std::int64_t most = rows <= kSpreadRows ? 256 : 1024;
  return in_features < most ? in_features : most;
}

static constexpr std::int64_t tile_count(const TileShape& shape, std::int64_t rows) {
  return (rows * shape.parts + kTileLines - 1) / kTileLines;
}

static constexpr std::int64_t tile_rows_offset(const TileShape& shape, std::int64_t in_features, std::int64_t rows) {
  return tile_count(shape, rows) * (in_features / shape.step) * kTileBytes;
}

static constexpr std::int64_t tile_form_bytes(const TileShape& shape, std::int64_t in_features, std::int64_t rows) {
  return tile_rows_offset(shape, in_features, rows) + rows * static_cast<std::int64_t>(sizeof(TileRow));
}

/// A step that multiplies the four bytes of MUL1 products: a band of 16 inputs, each value twice, (a a b b) for a row
/// pair; first the eight pairs for the products' low halves, then the same again for the high halves.
inline constexpr TileShape kBytes8Shape{16, 1, 0}, kBytes16Shape{16, 2, 0};
extern const ActivationForm kBytes8Form;   ///< int8
extern const ActivationForm kBytes16Form;  ///< int16 as a low and a high line

/// A step that multiplies the low and high bytes l, h of int16 weights with the low and high bytes of int16 inputs: two
/// bands, a line of words (high, low) that gives sum(l * high + h * low) and a line of words (0, high) that gives sum(h
/// * high). sum(l * low), 2^-16 of it all, is left out but for its mean.
inline constexpr TileShape kSplit16Shape{32, 2, 0};
extern const ActivationForm kSplit16Form;

/// bfloat16 row pairs of two bands; no scale, the transform not normalised.
inline constexpr TileShape kBf16Shape{32, 1, 1};
extern const ActivationForm kBf16Form;

/// int8, four bands: a dword is the row pairs j (even) and j + 1 as (a_j, a_{j+1}, b_j, b_{j+1}).
inline constexpr TileShape kInt8Shape{64, 1, 1};
extern const ActivationForm kInt8TileForm;

}  // namespace pergola
