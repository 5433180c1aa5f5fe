#include "backend/cpu/tile_forms_avx512.h"

#include "backend/cpu/hadamard_avx512.h"
#include "backend/cpu/pair_order_avx512.h"

namespace pergola {
namespace {

/// The transformed row: kept while it fits a small buffer, computed again where it does not.
class TransformedRow {
 public:
  TransformedRow(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features)
      : x_(x), count_(count), suh_(suh), kept_(in_features <= kMost) {
    __m512 largest = _mm512_setzero_ps();
    for (std::int64_t first = 0; first < in_features; first += kChunkRows) {
      const Block128 v = transformed_input(x_ + first, count_ - first, suh_ + first);
      for (int i = 0; i < 8; ++i) {
        largest = _mm512_max_ps(largest, _mm512_abs_ps(v.at[i]));
        if (kept_) _mm512_store_ps(values_ + first + 16 * i, v.at[i]);
      }
    }
    largest_ = _mm512_reduce_max_ps(largest);
  }

  float largest() const { return largest_; }

  PERGOLA_INLINE Block128 block(std::int64_t first) const {
    if (!kept_) return transformed_input(x_ + first, count_ - first, suh_ + first);
    Block128 v;
    for (int i = 0; i < 8; ++i) v.at[i] = _mm512_load_ps(values_ + first + 16 * i);
    return v;
  }

 private:
  static constexpr std::int64_t kMost = 8192;
  alignas(64) float values_[kMost];
  const float* x_;
  std::int64_t count_;
  const Half* suh_;
  bool kept_;
  float largest_;
};

/// Where the lines of one row lie.
struct LineWriter {
  std::byte* form;
  std::int64_t tiles;
  std::int64_t chunk;
  std::int64_t in_features;
  std::int64_t tile;
  std::int64_t line;
  int step_inputs;

  PERGOLA_INLINE LineWriter(const TileShape& shape, std::byte* to, std::int64_t k, std::int64_t row, std::int64_t rows)
      : form(to),
        tiles(tile_count(shape, rows)),
        chunk(shape.chunk == 0 ? k : chunk_inputs(k, rows)),
        in_features(k),
        tile(row * shape.parts / kTileLines),
        line(row * shape.parts % kTileLines),
        step_inputs(shape.step) {}

  /// Line 0 of the row for the step that starts at input `first`.
  PERGOLA_INLINE std::byte* at(std::int64_t first) const {
    const std::int64_t start = first / chunk * chunk;
    const std::int64_t inputs = start + chunk < in_features ? chunk : in_features - start;
    const std::int64_t step = (start * tiles + tile * inputs + (first - start)) / step_inputs;
    return form + step * kTileBytes + line * kLineBytes;
  }
};

/// Zeros behind the last row's lines.
PERGOLA_INLINE void clear_rest(const LineWriter& writer, const TileShape& shape, std::int64_t k) {
  for (std::int64_t first = 0; first < k; first += shape.step) {
    std::byte* line = writer.at(first);
    for (std::int64_t i = writer.line + shape.parts; i < kTileLines; ++i) {
      _mm512_store_si512(line + (i - writer.line) * kLineBytes, _mm512_setzero_si512());
    }
  }
}

/// |integer| <= kLargest, less for so many inputs that sums of 32-bit products could overflow: 510 * 127 * 33,000 is
/// the most.
PERGOLA_INLINE float integer_scale(float largest, float most, std::int64_t in_features) {
  constexpr std::int64_t kSafeInputs = 32768;
  if (in_features > kSafeInputs) most *= static_cast<float>(kSafeInputs) / static_cast<float>(in_features);
  return largest / most;
}

/// Writes the lines of integer forms from the words of two bands (row pairs, int16) and adds up their high bytes.
struct Bytes8Lines {
  static constexpr TileShape kShape = kBytes8Shape;
  static constexpr bool kHigh = false;
  static PERGOLA_INLINE void write(const LineWriter& writer, std::int64_t first, __m512i pairs, __m512i) {
    _mm512_store_si512(writer.at(first), _mm512_permutexvar_epi8(_mm512_load_si512(kDoubled.low[0]), pairs));
    _mm512_store_si512(writer.at(first + 16), _mm512_permutexvar_epi8(_mm512_load_si512(kDoubled.low[1]), pairs));
  }
};

struct Bytes16Lines {
  static constexpr TileShape kShape = kBytes16Shape;
  static constexpr bool kHigh = true;
  static PERGOLA_INLINE void write(const LineWriter& writer, std::int64_t first, __m512i pairs, __m512i rounded) {
    for (int band = 0; band < 2; ++band) {
      std::byte* line = writer.at(first + 16 * band);
      _mm512_store_si512(line, _mm512_permutexvar_epi8(_mm512_load_si512(kDoubled.low[band]), pairs));
      _mm512_store_si512(line + kLineBytes, _mm512_permutexvar_epi8(_mm512_load_si512(kDoubled.high[band]), rounded));
    }
  }
};

struct Split16Lines {
  static constexpr TileShape kShape = kSplit16Shape;
  static constexpr bool kHigh = true;
  static PERGOLA_INLINE void write(const LineWriter& writer, std::int64_t first, __m512i pairs, __m512i rounded) {
    std::byte* line = writer.at(first);
    _mm512_store_si512(line, _mm512_shrdi_epi16(rounded, pairs, 8));
    _mm512_store_si512(line + kLineBytes, _mm512_and_si512(rounded, _mm512_set1_epi16(static_cast<short>(0xFF00))));
  }
};

std::int64_t add_up(__m512i v) {
  return _mm512_reduce_add_epi32(v);
}

template <typename Lines>
void prepare_integer_lines(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features,
                           std::int64_t row, std::int64_t rows, std::byte* form) {
  const TransformedRow values(x, count, suh, in_features);
  // 127 * 256 + 127 is the largest integer with both bytes in -128..127.
  const float scale = integer_scale(values.largest(), Lines::kHigh ? 32639.0f : 127.0f, in_features);
  const __m512 factor = _mm512_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
  const LineWriter writer(Lines::kShape, form, in_features, row, rows);
  __m512i sum = _mm512_setzero_si512(), high_sum = _mm512_setzero_si512();
  for (std::int64_t first = 0; first < in_features; first += kChunkRows) {
    const Block128 v = values.block(first);
    for (int i = 0; i < 4; ++i) {
      const __m512i packed = quantise_bands(v.at[2 * i], v.at[2 * i + 1], factor, sum);
      const __m512i pairs = _mm512_permutexvar_epi16(_mm512_load_si512(kPairs.word), packed);
      const __m512i rounded = _mm512_add_epi16(pairs, _mm512_set1_epi16(128));
      if constexpr (Lines::kHigh)
        high_sum = _mm512_dpwssd_epi32(high_sum, _mm512_srai_epi16(rounded, 8), _mm512_set1_epi16(1));
      Lines::write(writer, first + 32 * i, pairs, rounded);
    }
  }
  auto& facts = reinterpret_cast<TileRow*>(form + tile_rows_offset(Lines::kShape, in_features, rows))[row];
  const std::int64_t total = add_up(sum), high = add_up(high_sum);
  facts = {scale * kTransformNorm, static_cast<std::int32_t>(total - 256 * high), static_cast<std::int32_t>(high), 0};
  if (row == rows - 1) clear_rest(writer, Lines::kShape, in_features);
}

/// Half away from zero: the upper halves of the result are the bfloat16 values.
PERGOLA_INLINE __m512i rounded_bf16(__m512 v) {
  return _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
}

/// Not normalised: the product's scale takes the norm of the transform (FloatTiles).
void prepare_bf16_lines(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                        std::int64_t rows, std::byte* form) {
  const LineWriter writer(kBf16Shape, form, in_features, row, rows);
  // Lines of a row are a tile apart within a chunk; chunks are multiples of a block but for the last.
  for (std::int64_t start = 0; start < in_features; start += writer.chunk) {
    const std::int64_t end = start + writer.chunk < in_features ? start + writer.chunk : in_features;
    std::byte* line = writer.at(start);
    for (std::int64_t first = start; first < end; first += kChunkRows, line += 4 * kTileBytes) {
      const Block128 v = transformed_input(x + first, count - first, suh + first);
      for (int i = 0; i < 4; ++i) {
        const __m512i a = rounded_bf16(v.at[2 * i]), b = rounded_bf16(v.at[2 * i + 1]);
        _mm512_store_si512(line + i * kTileBytes, _mm512_permutex2var_epi16(a, _mm512_load_si512(kUpperPairs.word), b));
      }
    }
  }
  if (row == rows - 1) clear_rest(writer, kBf16Shape, in_features);
}

void prepare_int8_lines(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                        std::int64_t rows, std::byte* form) {
  const TransformedRow values(x, count, suh, in_features);
  const float scale = integer_scale(values.largest(), 127.0f, in_features);
  const __m512 factor = _mm512_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
  const LineWriter writer(kInt8Shape, form, in_features, row, rows);
  __m512i sum = _mm512_setzero_si512();
  for (std::int64_t first = 0; first < in_features; first += kChunkRows) {
    const Block128 v = values.block(first);
    for (int i = 0; i < 2; ++i) {
      const __m512i bands01 = quantise_bands(v.at[4 * i], v.at[4 * i + 1], factor, sum);
      const __m512i bands23 = quantise_bands(v.at[4 * i + 2], v.at[4 * i + 3], factor, sum);
      _mm512_store_si512(writer.at(first + 64 * i),
                         _mm512_permutex2var_epi8(bands01, _mm512_load_si512(kQuads.byte), bands23));
    }
  }
  auto& facts = reinterpret_cast<TileRow*>(form + tile_rows_offset(kInt8Shape, in_features, rows))[row];
  facts = {scale * kTransformNorm, static_cast<std::int32_t>(add_up(sum)), 0, 0};
  if (row == rows - 1) clear_rest(writer, kInt8Shape, in_features);
}

template <const TileShape& kShape>
std::int64_t form_bytes(std::int64_t in_features, std::int64_t rows) {
  return tile_form_bytes(kShape, in_features, rows);
}

}  // namespace

constexpr ActivationForm kBytes8Form{"int8 tiles, doubled", form_bytes<kBytes8Shape>,
                                     prepare_integer_lines<Bytes8Lines>};
constexpr ActivationForm kBytes16Form{"int16 tiles, doubled", form_bytes<kBytes16Shape>,
                                      prepare_integer_lines<Bytes16Lines>};
constexpr ActivationForm kSplit16Form{"int16 tiles, split", form_bytes<kSplit16Shape>,
                                      prepare_integer_lines<Split16Lines>};
constexpr ActivationForm kBf16Form{"bf16 tiles", form_bytes<kBf16Shape>, prepare_bf16_lines};
constexpr ActivationForm kInt8TileForm{"int8 tiles", form_bytes<kInt8Shape>, prepare_int8_lines};

}  // namespace pergola
