#pragma once

// Many rows with AVX-512 vectors: 64 columns x 128 inputs are decoded to integers in the first-level cache, then
// multiplied with all rows, six at a time. Internal linkage: see trellis_avx512.h.

#include "backend/cpu/forms_avx512.h"
#include "backend/cpu/trellis_avx512.h"

namespace pergola {
namespace {

/// Decoded weights of a chunk: [step][strip and half] registers. A step is what a dword of the activations multiplies.
inline constexpr int kWordSteps = 64, kByteSteps = 32, kColumnVectors = 4;
inline constexpr std::int64_t kBlockScratch = kWordSteps * kColumnVectors * 64;

/// One int16 word a weight, as PairProducts of rows_avx512.h.
template <typename Weights>
struct WordBlocks {
  static constexpr Codebook kCodebook = Weights::kCodebook;
  static constexpr int kSteps128 = kWordSteps;
  static constexpr bool kBytes = false;
  static constexpr int kCentre = Weights::kCentre;
  static constexpr float kUnit = Weights::kUnit;
  static constexpr float kOffset = Weights::kOffset;
  struct Held {};

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int band, std::byte* column, Held&) {
    _mm512_store_si512(column + (8 * band + kPair) * kColumnVectors * 64, Weights::from(x));
  }
};

/// One unsigned byte a weight: the upper bits of the word. weight = kUnit * (byte - 128) + kOffset.
template <typename Weights>
struct ByteBlocks {
  static constexpr Codebook kCodebook = Weights::kCodebook;
  static constexpr int kSteps128 = kByteSteps;
  static constexpr bool kBytes = true;
  static constexpr int kCentre = 128;
  static constexpr float kUnit = Weights::kByteUnit;
  static constexpr float kOffset = Weights::kByteOffset;
  struct Held {
    __m512i even;
  };

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int band, std::byte* column, Held& held) {
    const __m512i top = Weights::byte_on_top(Weights::from(x));
    if constexpr ((kPair & 1) == 0) {
      held.even = _mm512_srli_epi16(top, 8);
    } else {
      const __m512i both = _mm512_ternarylogic_epi32(top, held.even, _mm512_set1_epi16(0x00FF), 0xD8);
      _mm512_store_si512(column + (4 * band + kPair / 2) * kColumnVectors * 64, both);
    }
  }
};

/// Decodes both strips of a stream's chunk.
template <typename Blocks, int K>
PERGOLA_INLINE void decode_chunk(const std::byte* chunk, std::byte* weights) {
  for (int strip = 0; strip < 2; ++strip) {
    for (int band = 0; band < kBandsPerChunk; ++band) {
      const std::byte* piece = chunk + strip * kRunBytes<K> + band * piece_bytes(K);
      for (int i = 0; i < K; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + 2 * kRunBytes<K>), _MM_HINT_T0);
      }
      const Planes<K> planes = load_planes<K>(piece);
      std::byte* half0 = weights + strip * 2 * 64;
      typename Blocks::Held held0, held1;
      for_pairs([&](auto pair) __attribute__((always_inline)) {
        using P = decltype(pair);
        Blocks::template store<P::kIndex>(multiply_states<Blocks::kCodebook>(states<K, P::kStep0>(planes)), band, half0,
                                          held0);
        Blocks::template store<P::kIndex>(multiply_states<Blocks::kCodebook>(states<K, P::kStep1>(planes)), band,
                                          half0 + 64, held1);
      });
    }
  }
}

/// Rows [0, kRows) of a form times a decoded chunk, added to z (or stored there if `first`): 64 columns in lane order.
template <bool kBytes, int kRows>
PERGOLA_INLINE void multiply_decoded(const std::byte* weights, const std::byte* form, std::int64_t in_features,
                                     std::int64_t chunk, int centre, bool first, float* z) {
  constexpr int kSteps = kBytes ? kByteSteps : kWordSteps;
  const std::int64_t stride = vector_row_bytes(in_features);
  const std::byte* values = form + chunk * kSteps * 4;
  const auto fact = [&](int r, std::int64_t offset) { return form + r * stride + offset + chunk * 4; };
  __m512i sums[kRows][kColumnVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const auto sum = *reinterpret_cast<const std::int32_t*>(fact(r, vector_sums_offset(in_features)));
    for (__m512i& s : sums[r]) s = _mm512_set1_epi32(-centre * sum);
  }
  for (int step = 0; step < kSteps; ++step, weights += kColumnVectors * 64, values += 4) {
    __m512i w[kColumnVectors];
    for (int i = 0; i < kColumnVectors; ++i) w[i] = _mm512_load_si512(weights + 64 * i);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(values + r * stride));
      for (int i = 0; i < kColumnVectors; ++i) {
        sums[r][i] = kBytes ? _mm512_dpbusd_epi32(sums[r][i], w[i], x) : _mm512_dpwssd_epi32(sums[r][i], w[i], x);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r, z += kBlockColumns) {
    const __m512 scale = _mm512_set1_ps(*reinterpret_cast<const float*>(fact(r, vector_scales_offset(in_features))));
    for (int i = 0; i < kColumnVectors; ++i) {
      const __m512 before = first ? _mm512_setzero_ps() : _mm512_loadu_ps(z + 16 * i);
      _mm512_storeu_ps(z + 16 * i, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][i]), scale, before));
    }
  }
}

template <bool kBytes>
void multiply_decoded_rows(const std::byte* weights, const std::byte* form, std::int64_t in_features,
                           std::int64_t chunk, int centre, std::int64_t rows, float* z) {
  const std::int64_t stride = vector_row_bytes(in_features);
  const bool first = chunk == 0;
  std::int64_t r = 0;
  for (; r + 6 <= rows; r += 6) {
    multiply_decoded<kBytes, 6>(weights, form + r * stride, in_features, chunk, centre, first, z + r * kBlockColumns);
  }
  for (; r + 2 <= rows; r += 2) {
    multiply_decoded<kBytes, 2>(weights, form + r * stride, in_features, chunk, centre, first, z + r * kBlockColumns);
  }
  if (r < rows) {
    multiply_decoded<kBytes, 1>(weights, form + r * stride, in_features, chunk, centre, first, z + r * kBlockColumns);
  }
}

std::int64_t block_scratch(std::int64_t, std::int64_t) {
  return kBlockScratch;
}

template <typename Blocks, int K>
void multiply_block_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                         float* z, std::byte* scratch) {
  const std::int64_t stream_bytes = stream_bytes_of<K>(in_features);
  for (int s = 0; s < 2; ++s) {
    for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
      decode_chunk<Blocks, K>(block + s * stream_bytes + chunk * 2 * kRunBytes<K>, scratch);
      multiply_decoded_rows<Blocks::kBytes>(scratch, form, in_features, chunk, Blocks::kCentre, rows,
                                            z + s * kStreamColumns);
    }
  }
  const __m512 unit = _mm512_set1_ps(Blocks::kUnit);
  for (std::int64_t r = 0; r < rows; ++r, z += kBlockColumns) {
    const std::byte* total = form + r * vector_row_bytes(in_features) + vector_total_offset(in_features);
    const __m512 offset = _mm512_set1_ps(Blocks::kOffset * *reinterpret_cast<const float*>(total));
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      float* at = z + strip * kStripColumns;
      store_strip(at, _mm512_fmadd_ps(_mm512_loadu_ps(at), unit, offset),
                  _mm512_fmadd_ps(_mm512_loadu_ps(at + 16), unit, offset));
    }
  }
}

}  // namespace
}  // namespace pergola
