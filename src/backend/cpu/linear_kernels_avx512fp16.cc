// 3INST and MCG with binary16 arithmetic: a codebook value is the sum of two halves, one addition and its rounding for
// 32 weights.

#include "backend/cpu/blocks_avx512.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/rows_avx512.h"

namespace pergola {
namespace {

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

constexpr double kExactTolerance = 5e-4;
constexpr double kHalfTolerance = 1e-3;
constexpr double kShortInt8Tolerance = 1.6e-2;  // int8 weights too

/// Exponents of the summands as they are (12..15), and 12 higher so that values convert to integers in units of 2^-12.
constexpr std::uint32_t kPlain = 0x3B60, kTimes4096 = 0x3B60 ^ 0x5000;

/// Codebook values of 32 states, |value| < 4 (or 2^14).
template <std::uint32_t kFlip>
PERGOLA_INLINE __m512h values(const Product& x) {
  return _mm512_add_ph(_mm512_castsi512_ph(summands(x.low, kFlip)), _mm512_castsi512_ph(summands(x.high, kFlip)));
}

/// Codebook values as int16 in units of 2^-12: exact but for magnitudes below 1/4, whose last bit is 2^-13 or smaller.
template <Codebook codebook>
struct RoundedWeights {
  static constexpr Codebook kCodebook = codebook;
  static constexpr int kCentre = 0;
  static constexpr int kLargest = 1 << 14;
  static constexpr float kUnit = 1.0f / 4096.0f;
  static constexpr float kOffset = 0.0f;

  static constexpr float kByteUnit = 1.0f / 32.0f;
  static constexpr float kByteOffset = 0.0f;

  static PERGOLA_INLINE __m512i from(const Product& x) { return _mm512_cvtph_epi16(values<kTimes4096>(x)); }
  static PERGOLA_INLINE __m512i byte_on_top(__m512i word) {
    return _mm512_add_epi16(_mm512_add_epi16(word, word), words(0x8080));
  }
};

PERGOLA_INLINE __m512 low_lanes(__m512h v) {
  return _mm512_cvtxph_ps(_mm512_castph512_ph256(v));
}
PERGOLA_INLINE __m512 high_lanes(__m512h v) {
  return _mm512_cvtxph_ps((__m256h)_mm512_extracti64x4_epi64(_mm512_castph_si512(v), 1));
}

/// a[0] + a[1], a[2] + a[3], ... of 32 floats: the two row halves of every lane.
PERGOLA_INLINE __m512 add_neighbours(__m512 first, __m512 second) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_add_ps(_mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second));
}

/// One row in binary16: products are added in binary16 over two bands (16 terms a sum), then in fp32.
template <Codebook codebook, int K>
void multiply_one_row_halves(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t,
                             float* z, std::byte*) {
  const VectorInput input(form, in_features, 0);
  const std::int64_t stream_bytes = stream_bytes_of<K>(in_features);
  alignas(64) float total[2][2][2][2][16] = {};  // [strip][stream][half][lanes 0..7 or 8..15][2 * lane + row half]
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    const __m512 scale = _mm512_set1_ps(input.scales[chunk]);
    for (int strip = 0; strip < 2; ++strip) {
      const std::int64_t position = (2 * chunk + strip) * kRunBytes<K>;
      const Ahead ahead(position, stream_bytes);
      __m512 sums[2][2][2];
      for (auto& stream : sums) {
        for (auto& half : stream) half[0] = half[1] = _mm512_setzero_ps();
      }
      for (int band = 0; band < kBandsPerChunk; band += 2) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
          __m512h sum0 = _mm512_setzero_ph(), sum1 = _mm512_setzero_ph();
#pragma GCC unroll 2
          for (int b = 0; b < 2; ++b) {
            const std::byte* piece = block + s * stream_bytes + position + (band + b) * piece_bytes(K);
            const std::int32_t* pairs = input.pairs + (chunk * kBandsPerChunk + band + b) * 8;
            prefetch_piece<K>(piece, ahead);
            const Planes<K> planes = load_planes<K>(piece);
            for_pairs([&](auto pair) __attribute__((always_inline)) {
              using P = decltype(pair);
              const __m512h w0 = values<kPlain>(multiply_states<codebook>(states<K, P::kStep0>(planes)));
              const __m512h w1 = values<kPlain>(multiply_states<codebook>(states<K, P::kStep1>(planes)));
              const __m512h x = _mm512_castsi512_ph(_mm512_set1_epi32(pairs[P::kIndex]));
              sum0 = _mm512_fmadd_ph(w0, x, sum0);
              sum1 = _mm512_fmadd_ph(w1, x, sum1);
            });
          }
          sums[s][0][0] = _mm512_add_ps(sums[s][0][0], low_lanes(sum0));
          sums[s][0][1] = _mm512_add_ps(sums[s][0][1], high_lanes(sum0));
          sums[s][1][0] = _mm512_add_ps(sums[s][1][0], low_lanes(sum1));
          sums[s][1][1] = _mm512_add_ps(sums[s][1][1], high_lanes(sum1));
        }
      }
      for (int s = 0; s < 2; ++s) {
        for (int half = 0; half < 2; ++half) {
          for (int part = 0; part < 2; ++part) {
            float* t = total[strip][s][half][part];
            _mm512_store_ps(t, _mm512_fmadd_ps(sums[s][half][part], scale, _mm512_load_ps(t)));
          }
        }
      }
    }
  }
  for (int strip = 0; strip < 2; ++strip) {
    for (int s = 0; s < 2; ++s) {
      const auto& t = total[strip][s];
      store_strip(z + s * kStreamColumns + strip * kStripColumns,
                  add_neighbours(_mm512_load_ps(t[0][0]), _mm512_load_ps(t[0][1])),
                  add_neighbours(_mm512_load_ps(t[1][0]), _mm512_load_ps(t[1][1])));
    }
  }
}

template <Codebook codebook, int K>
void fill_entry(KernelTable& table, Precision precision) {
  using Weights = RoundedWeights<codebook>;
  table.entry(codebook, K, Regime::one) = {"avx512 fp16", &kHalfPairForm, kHalfTolerance, no_scratch,
                                           multiply_one_row_halves<codebook, K>};
  table.entry(codebook, K, Regime::few) = {"avx512 fp16 to int16, rows", &kInt16Halves12Form, kExactTolerance,
                                           no_scratch, multiply_few_rows<PairProducts<Weights>, K>};
  if (precision == Precision::int8) {
    table.entry(codebook, K, Regime::many) = {"avx512 fp16 to int8, decoded", &kInt8QuadForm, kShortInt8Tolerance,
                                              block_scratch, multiply_block_rows<ByteBlocks<Weights>, K>};
  } else {
    table.entry(codebook, K, Regime::many) = {"avx512 fp16 to int16, decoded", &kInt16Halves12Form, kExactTolerance,
                                              block_scratch, multiply_block_rows<WordBlocks<Weights>, K>};
  }
}

template <int... K>
void fill(KernelTable& table, Precision precision, std::integer_sequence<int, K...>) {
  (fill_entry<Codebook::mcg, K + 1>(table, precision), ...);
  (fill_entry<Codebook::three_inst, K + 1>(table, precision), ...);
}

}  // namespace

void add_avx512fp16_kernels(KernelTable& table, Precision precision) {
  fill(table, precision, std::make_integer_sequence<int, kBitWidths>{});
}

}  // namespace pergola
