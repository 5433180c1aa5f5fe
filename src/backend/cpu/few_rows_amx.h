#pragma once

// 2..16 rows with AMX tiles: weights are decoded into a small ring of tiles while a step before is multiplied.
// Internal linkage: see trellis_avx512.h.

#include "backend/cpu/tiles_amx.h"

namespace pergola {
namespace {

/// Products of the lines of one or two left tiles with 64 or 32 columns: four tiles of sums that live in registers over
/// all inputs.
///
/// kTiles = 1: left tile 4, weights 5, sums 0..3 = [strip][half]. kTiles = 2: left tiles 4 and 5, weights 6 and 7, sums
/// 2 * left + half. `left` is the first line of the tile (the next tile is `tile_bytes` further), `strip` the first
/// strip 0..3 of the block. `sums` receives the four tiles.
template <typename Weights, int K, int kTiles>
void multiply_tiles(const std::byte* block, std::int64_t in_features, int strip, const std::byte* left,
                    std::int64_t tile_bytes, std::int32_t* sums) {
  constexpr int kStrips = 2 / kTiles;
  const std::int64_t stream_bytes = stream_bytes_of<K>(in_features);
  const std::byte* stream = block + (strip >> 1) * stream_bytes;
  const std::int64_t steps = in_features / (kBandRows * Weights::kBands);
  constexpr int kRing = Weights::kRing;
  alignas(64) std::byte ring[kRing][2 * kStrips][kTileBytes];

  const auto decode = [&](std::int64_t step) __attribute__((always_inline)) {
    auto& tiles = ring[step % kRing];
    for (int s = 0; s < kStrips; ++s) {
      for (int b = 0; b < Weights::kBands; ++b) {
        const std::int64_t band = step * Weights::kBands + b;
        const std::int64_t run = 2 * (band / kBandsPerChunk) + ((strip & 1) + s);
        const std::int64_t position = run * kRunBytes<K> + band % kBandsPerChunk * piece_bytes(K);
        prefetch_piece<K>(stream + position, Ahead(position, stream_bytes));
        decode_piece<Weights, K>(stream + position, b, tiles[2 * s], tiles[2 * s + 1]);
      }
    }
  };

  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t ahead = 0; ahead < steps + kRing - 1; ++ahead) {
    if (ahead < steps) decode(ahead);
    const std::int64_t step = ahead - (kRing - 1);
    if (step < 0) continue;
    finish_stores();
    const auto& tiles = ring[step % kRing];
    _tile_loadd(4, left, kLineBytes);
    if constexpr (kTiles == 1) {
      _tile_loadd(5, tiles[0], kLineBytes);
      _tile_dpbsud(0, 4, 5);
      _tile_loadd(6, tiles[1], kLineBytes);
      _tile_dpbsud(1, 4, 6);
      _tile_loadd(7, tiles[2], kLineBytes);
      _tile_dpbsud(2, 4, 7);
      _tile_loadd(5, tiles[3], kLineBytes);
      _tile_dpbsud(3, 4, 5);
    } else {
      _tile_loadd(6, tiles[0], kLineBytes);
      _tile_dpbsud(0, 4, 6);
      _tile_loadd(7, tiles[1], kLineBytes);
      _tile_dpbsud(1, 4, 7);
      _tile_loadd(5, left + tile_bytes, kLineBytes);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    }
    finish_stores();
    left += kTileBytes;
  }
  _tile_stored(0, sums, kLineBytes);
  _tile_stored(1, sums + 256, kLineBytes);
  _tile_stored(2, sums + 512, kLineBytes);
  _tile_stored(3, sums + 768, kLineBytes);
  finish_stores();
}

/// How the line sums of a row combine to z: of MUL1 bytes one line for each byte of the activation.
template <bool kInt16>
struct ByteLines : ProductBytes {
  static constexpr const TileShape& kShape = kInt16 ? kBytes16Shape : kBytes8Shape;

  static PERGOLA_INLINE __m512 value(const std::int32_t* lines, const TileRow& row) {
    const __m512i low = _mm512_sub_epi32(_mm512_load_si512(lines), _mm512_set1_epi32(kMul1Centre * row.low_sum));
    __m512 sum = _mm512_cvtepi32_ps(low);
    float integers = static_cast<float>(row.low_sum);
    if constexpr (kInt16) {
      const __m512i high =
          _mm512_sub_epi32(_mm512_load_si512(lines + 16), _mm512_set1_epi32(kMul1Centre * row.high_sum));
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(256.0f), sum);
      integers += 256.0f * static_cast<float>(row.high_sum);
    }
    return _mm512_fmadd_ps(sum, _mm512_set1_ps(kMul1Unit * row.scale),
                           _mm512_set1_ps(ByteSumWeights::kOffset * row.scale * integers));
  }
};

/// Of split words: sum(low * high + high * low) and sum(high * high), see kSplit16Shape. The high bytes of weights
/// stand 128 too high, the low ones are 127.5 on average.
template <Codebook codebook>
struct SplitLines : SplitWords<codebook> {
  static constexpr const TileShape& kShape = kSplit16Shape;

  static PERGOLA_INLINE __m512 value(const std::int32_t* lines, const TileRow& row) {
    const __m512i mixed = _mm512_sub_epi32(_mm512_load_si512(lines), _mm512_set1_epi32(128 * row.low_sum));
    const __m512i high = _mm512_sub_epi32(_mm512_load_si512(lines + 16), _mm512_set1_epi32(128 * row.high_sum));
    const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(mixed));
    const float unit = row.scale * (1.0f / 4096.0f);
    return _mm512_fmadd_ps(sum, _mm512_set1_ps(256.0f * unit),
                           _mm512_set1_ps(127.5f * unit * static_cast<float>(row.low_sum)));
  }
};

/// z of the rows in a tile, for one strip, from its two tiles of line sums.
template <typename Lines>
PERGOLA_INLINE void store_rows(const std::int32_t* half0, const std::int32_t* half1, const TileRow* facts,
                               std::int64_t rows, float* z) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t line = r * Lines::kShape.parts * 16;
    store_strip(z + r * kBlockColumns, Lines::value(half0 + line, facts[r]), Lines::value(half1 + line, facts[r]));
  }
}

/// All rows of one or two tiles from tile `first`.
template <typename Lines, int K, int kTiles>
void multiply_row_tiles(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t first,
                        std::int64_t rows, float* z) {
  constexpr std::int64_t kParts = Lines::kShape.parts, kRows = kTileLines / kParts;
  const std::int64_t tile_bytes = in_features / Lines::kShape.step * kTileBytes;
  const std::byte* left = form + first * tile_bytes;
  const auto* facts =
      reinterpret_cast<const TileRow*>(form + tile_rows_offset(Lines::kShape, in_features, rows)) + first * kRows;
  const std::int64_t rest = rows - first * kRows;  // rows from this tile on
  const auto rows_of = [&](std::int64_t tile) { return rest - tile * kRows < kRows ? rest - tile * kRows : kRows; };
  const int lines0 = static_cast<int>(rows_of(0) * kParts);
  z += first * kRows * kBlockColumns;
  alignas(64) std::int32_t sums[4 * 256];
  if constexpr (kTiles == 1) {
    configure_tiles({lines0, lines0, lines0, lines0, lines0, 16, 16, 16});
    for (int strip = 0; strip < kStripsPerBlock; strip += 2) {
      multiply_tiles<Lines, K, 1>(block, in_features, strip, left, tile_bytes, sums);
      store_rows<Lines>(sums, sums + 256, facts, rows_of(0), z + strip * kStripColumns);
      store_rows<Lines>(sums + 512, sums + 768, facts, rows_of(0), z + (strip + 1) * kStripColumns);
    }
  } else {
    const int lines1 = static_cast<int>(rows_of(1) * kParts);
    configure_tiles({lines0, lines0, lines1, lines1, lines0, lines1, 16, 16});
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      multiply_tiles<Lines, K, 2>(block, in_features, strip, left, tile_bytes, sums);
      store_rows<Lines>(sums, sums + 256, facts, rows_of(0), z + strip * kStripColumns);
      store_rows<Lines>(sums + 512, sums + 768, facts + kRows, rows_of(1),
                        z + kRows * kBlockColumns + strip * kStripColumns);
    }
  }
}

template <typename Lines, int K>
void multiply_few_rows_amx(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                           float* z, std::byte*) {
  const std::int64_t tiles = (rows * Lines::kShape.parts + kTileLines - 1) / kTileLines;
  std::int64_t tile = 0;
  for (; tile + 2 <= tiles; tile += 2) multiply_row_tiles<Lines, K, 2>(block, in_features, form, tile, rows, z);
  if (tile < tiles) multiply_row_tiles<Lines, K, 1>(block, in_features, form, tile, rows, z);
  _tile_release();
}

}  // namespace
}  // namespace pergola
