#pragma once

// Many rows with AMX tiles: strips of 32 columns are decoded for a chunk of inputs, then multiplied with the rows. With
// up to kSpreadRows rows a strip is multiplied with all of them while the next one is decoded in between; beyond, all
// strips of the block are decoded first and two tiles of rows meet them all, so that rows, which no longer fit into the
// second-level cache, are read once a block. Internal linkage: see trellis_avx512.h.

#include "backend/cpu/hadamard_avx512.h"
#include "backend/cpu/tiles_amx.h"

namespace pergola {
namespace {

/// How a tile form of many rows is multiplied and what its sums mean.
template <Codebook codebook>
struct FloatTiles : BrainFloats<codebook> {
  static constexpr const TileShape& kShape = kBf16Shape;
  static constexpr bool kFloat = true;

  static PERGOLA_INLINE __m512 value(const float* sums, const TileRow&) {
    return _mm512_mul_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(kTransformNorm / BrainFloats<codebook>::kScale));
  }
};

template <Codebook codebook>
struct ByteTiles : ShortBytes<codebook> {
  static constexpr const TileShape& kShape = kInt8Shape;
  static constexpr bool kFloat = false;

  static PERGOLA_INLINE __m512 value(const float* sums, const TileRow& row) {
    const __m512i centred = _mm512_sub_epi32(_mm512_loadu_si512(sums), _mm512_set1_epi32(128 * row.low_sum));
    const __m512 integers = _mm512_cvtepi32_ps(centred);
    if constexpr (codebook == Codebook::mul1) {
      // A byte sum is 4 * byte plus 1.5 on average.
      const float offset = kMul1Unit * (4 * 128 + 1.5f) + kMul1Zero;
      return _mm512_fmadd_ps(integers, _mm512_set1_ps(4.0f * kMul1Unit * row.scale),
                             _mm512_set1_ps(offset * row.scale * static_cast<float>(row.low_sum)));
    } else {
      return _mm512_mul_ps(integers, _mm512_set1_ps(row.scale * (1.0f / 32.0f)));
    }
  }
};

/// Decodes the pieces of one strip in a chunk of inputs, one at a time, to [half][step] tiles.
template <typename Weights, int K>
class StripDecoder {
 public:
  PERGOLA_INLINE StripDecoder(const std::byte* block, std::int64_t in_features, int strip, std::int64_t first,
                              std::int64_t inputs, std::byte* tiles)
      : at_(block + (strip >> 1) * stream_bytes_of<K>(in_features) +
            (first / kChunkRows * 2 + (strip & 1)) * kRunBytes<K>),
        tiles_(tiles),
        half_bytes_(inputs / (kBandRows * Weights::kBands) * kTileBytes),
        pieces_(inputs / kBandRows) {}

  PERGOLA_INLINE std::int64_t pieces() const { return pieces_; }

  PERGOLA_INLINE void decode_next() {
    const std::byte* piece = at_ + (next_ >> 3) * 2 * kRunBytes<K> + (next_ & 7) * piece_bytes(K);
    std::byte* tile = tiles_ + next_ / Weights::kBands * kTileBytes;
    for (int i = 0; i < K; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + kAheadBytes), _MM_HINT_T0);
    }
    decode_piece<Weights, K>(piece, static_cast<int>(next_ % Weights::kBands), tile, tile + half_bytes_);
    ++next_;
  }

  /// All pieces; lines are fetched for writing before they are written, because a strip may be larger than the
  /// first-level cache.
  PERGOLA_INLINE void decode_all() {
    constexpr std::int64_t kLines = kTileLines / Weights::kBands;
    while (next_ < pieces_) {
      const std::byte* tile = tiles_ + (next_ + Weights::kBands) * kLines * kLineBytes;
      for (int i = 0; i < kLines; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(tile + i * kLineBytes), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(tile + half_bytes_ + i * kLineBytes), _MM_HINT_T0);
      }
      decode_next();
    }
    finish_stores();
  }

 private:
  static constexpr std::int64_t kAheadBytes = 2048;

  const std::byte* at_;
  std::byte* tiles_;
  std::int64_t half_bytes_;
  std::int64_t pieces_;
  std::int64_t next_ = 0;
};

/// Calls decoder.decode_next() `pieces` times, evenly over `steps` steps.
template <typename Decoder>
struct SpreadDecoding {
  Decoder& decoder;
  std::int64_t pieces;
  std::int64_t steps;
  std::int64_t owed = 0;

  PERGOLA_INLINE void after_step() {
    for (owed += pieces; owed >= steps; owed -= steps) {
      decoder.decode_next();
      finish_stores();
    }
  }
};

/// Asks for the rows that come next, a share of them in every step: two tiles a step of two, over all strips.
struct RowsAhead {
  const std::byte* at;

  PERGOLA_INLINE void after_step() {
    constexpr int kLines = 2 * kTileLines / kStripsPerBlock;
    for (int i = 0; i < kLines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(at + i * kLineBytes), _MM_HINT_T1);
    }
    at += kLines * kLineBytes;
  }
};

/// sums[kLeft tiles][2 halves] += left * weights over `steps` steps. Left tiles and halves of weights are
/// `column_bytes` apart; sums of left tile 0 are at `sums0`, of 1 at `sums1`, those of the second half 64 bytes
/// further, lines 512 bytes apart.
template <typename Tiles, int kLeft, typename Spread>
PERGOLA_INLINE void multiply_chunk(const std::byte* left, const std::byte* weights, std::int64_t column_bytes,
                                   std::int64_t steps, bool first, float* sums0, float* sums1, Spread& spread) {
  constexpr std::int64_t kStride = kBlockColumns * sizeof(float);
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums0, kStride);
    _tile_loadd(1, sums0 + 16, kStride);
    if constexpr (kLeft == 2) {
      _tile_loadd(2, sums1, kStride);
      _tile_loadd(3, sums1 + 16, kStride);
    }
  }
  for (std::int64_t step = 0; step < steps; ++step, left += kTileBytes, weights += kTileBytes) {
    _tile_loadd(4, left, kLineBytes);
    _tile_loadd(6, weights, kLineBytes);
    _tile_loadd(7, weights + column_bytes, kLineBytes);
    if constexpr (kLeft == 2) _tile_loadd(5, left + column_bytes, kLineBytes);
    if constexpr (Tiles::kFloat) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kLeft == 2) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    } else {
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 4, 7);
      if constexpr (kLeft == 2) {
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      }
    }
    spread.after_step();
  }
  _tile_stored(0, sums0, kStride);
  _tile_stored(1, sums0 + 16, kStride);
  if constexpr (kLeft == 2) {
    _tile_stored(2, sums1, kStride);
    _tile_stored(3, sums1 + 16, kStride);
  }
  finish_stores();
}

template <typename Tiles>
PERGOLA_INLINE void finish_rows(const float* sums, const TileRow* facts, std::int64_t rows, float* z) {
  for (std::int64_t r = 0; r < rows; ++r, sums += kBlockColumns, z += kBlockColumns) {
    const TileRow row = Tiles::kFloat ? TileRow{} : facts[r];
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      const float* at = sums + strip * kStripColumns;
      const __m512 half0 = Tiles::value(at, row), half1 = Tiles::value(at + 16, row);
      store_strip(z + strip * kStripColumns, half0, half1);
    }
  }
}

template <typename Tiles>
constexpr std::int64_t strip_bytes(std::int64_t inputs) {
  return inputs / Tiles::kShape.step * 2 * kTileBytes;
}

/// Scratch: decoded strips of a chunk, then the sums of a last tile with fewer than 16 rows.
template <typename Tiles>
std::int64_t many_rows_scratch(std::int64_t in_features, std::int64_t rows) {
  // The larger of both kinds of chunk, because scratch for fewer rows is also asked for with the largest row count.
  const std::int64_t inputs = chunk_inputs(in_features, kSpreadRows + 1 > rows ? kSpreadRows + 1 : rows);
  return kStripsPerBlock * strip_bytes<Tiles>(inputs) +
         kTileLines * kBlockColumns * static_cast<std::int64_t>(sizeof(float));
}

/// One block of columns with many rows. The sums of full tiles are kept in z, in lane order until the end.
template <typename Tiles, int K>
class ManyRows {
 public:
  PERGOLA_INLINE ManyRows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                          float* z, std::byte* scratch)
      : block_(block),
        in_features_(in_features),
        form_(form),
        z_(z),
        scratch_(scratch),
        chunk_(chunk_inputs(in_features, rows)),
        tiles_(tile_count(Tiles::kShape, rows)),
        full_(rows / kTileLines),
        rest_(reinterpret_cast<float*>(scratch + kStripsPerBlock * strip_bytes<Tiles>(chunk_))) {}

  /// Strip after strip with all rows; the next one is decoded meanwhile.
  PERGOLA_INLINE void strips_first() {
    const std::int64_t units = (in_features_ + chunk_ - 1) / chunk_ * kStripsPerBlock;  // [chunk][strip]
    decoder_of(0, 0).decode_all();
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const std::int64_t first = unit / kStripsPerBlock * chunk_, ahead = unit + 1 < units ? unit + 1 : unit;
      const int strip = static_cast<int>(unit % kStripsPerBlock);
      Decoder next = decoder_of(ahead / kStripsPerBlock * chunk_, static_cast<int>(ahead % kStripsPerBlock));
      SpreadDecoding<Decoder> spread{next, ahead == unit ? 0 : next.pieces(), steps_of(first) * ((tiles_ + 1) / 2)};
      for (std::int64_t tile = 0; tile < tiles_; tile += 2) multiply(first, tile, strip, spread);
    }
  }

  /// Two tiles of rows with all strips.
  PERGOLA_INLINE void rows_first() {
    for (std::int64_t first = 0; first < in_features_; first += chunk_) {
      for (int strip = 0; strip < kStripsPerBlock; ++strip) decoder_of(first, strip).decode_all();
      for (std::int64_t tile = 0; tile < tiles_; tile += 2) {
        RowsAhead ahead{left_of(first, tile + 2)};
        for (int strip = 0; strip < kStripsPerBlock; ++strip) multiply(first, tile, strip, ahead);
      }
    }
  }

  PERGOLA_INLINE void finish(std::int64_t rows) {
    const auto* facts = reinterpret_cast<const TileRow*>(form_ + tile_rows_offset(Tiles::kShape, in_features_, rows));
    const std::int64_t whole = full_ * kTileLines;
    finish_rows<Tiles>(z_, facts, whole, z_);
    finish_rows<Tiles>(rest_, facts + whole, rows - whole, z_ + whole * kBlockColumns);
  }

 private:
  using Decoder = StripDecoder<Tiles, K>;

  PERGOLA_INLINE std::int64_t steps_of(std::int64_t first) const {
    const std::int64_t left = in_features_ - first;
    return (left < chunk_ ? left : chunk_) / Tiles::kShape.step;
  }
  PERGOLA_INLINE std::byte* strip_memory(int strip) const { return scratch_ + strip * strip_bytes<Tiles>(chunk_); }
  PERGOLA_INLINE Decoder decoder_of(std::int64_t first, int strip) const {
    return Decoder(block_, in_features_, strip, first, steps_of(first) * Tiles::kShape.step, strip_memory(strip));
  }
  PERGOLA_INLINE const std::byte* left_of(std::int64_t first, std::int64_t tile) const {
    return form_ + (first / Tiles::kShape.step * tiles_ + tile * steps_of(first)) * kTileBytes;
  }
  PERGOLA_INLINE float* sums_of(std::int64_t tile) const {
    return tile < full_ ? z_ + tile * kTileLines * kBlockColumns : rest_;
  }

  /// Two tiles of rows (or the last one) with one strip.
  template <typename AfterStep>
  PERGOLA_INLINE void multiply(std::int64_t first, std::int64_t tile, int strip, AfterStep& after) const {
    const std::int64_t steps = steps_of(first), column_bytes = steps * kTileBytes, column = strip * kStripColumns;
    float* sums = sums_of(tile) + column;
    if (tile + 1 < tiles_) {
      multiply_chunk<Tiles, 2>(left_of(first, tile), strip_memory(strip), column_bytes, steps, first == 0, sums,
                               sums_of(tile + 1) + column, after);
    } else {
      multiply_chunk<Tiles, 1>(left_of(first, tile), strip_memory(strip), column_bytes, steps, first == 0, sums, sums,
                               after);
    }
  }

  const std::byte* block_;
  std::int64_t in_features_;
  const std::byte* form_;
  float* z_;
  std::byte* scratch_;
  std::int64_t chunk_, tiles_, full_;
  float* rest_;
};

template <typename Tiles, int K>
void multiply_many_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                        float* z, std::byte* scratch) {
  ManyRows<Tiles, K> product(block, in_features, form, rows, z, scratch);
  configure_tiles({16, 16, 16, 16, 16, 16, 16, 16});
  rows <= kSpreadRows ? product.strips_first() : product.rows_first();
  _tile_release();
  product.finish(rows);
}

}  // namespace
}  // namespace pergola
