#pragma once

// Orders of the values of neighbouring bands in the activation forms (forms_avx512.h). Internal linkage: see
// trellis_avx512.h.

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/packed_matrix.h"

#ifndef PERGOLA_INLINE
#define PERGOLA_INLINE inline __attribute__((always_inline))
#endif

namespace pergola {
namespace {

/// The input (0..15 of its band) of word w of two bands in row pairs.
constexpr int input_of_word(int w) {
  return pair_row((w & 15) >> 1) + 4 * (w & 1);
}

/// Where packs_epi32(band 0, band 1) puts input i of a band: every 128-bit lane has four of each.
constexpr int packed_place(int band, int i) {
  return 8 * (i >> 2) + 4 * band + (i & 3);
}

/// Row pairs of two bands from packs_epi32.
struct PairIndex {
  alignas(64) std::uint16_t word[32];
  alignas(64) std::uint8_t twice[64];  ///< the low byte of every word twice
  constexpr PairIndex() : word(), twice() {
    for (int w = 0; w < 32; ++w) {
      const int place = packed_place(w >> 4, input_of_word(w));
      word[w] = static_cast<std::uint16_t>(place);
      twice[2 * w] = twice[2 * w + 1] = static_cast<std::uint8_t>(2 * place);
    }
  }
};
constexpr PairIndex kPairs;

/// From row pairs of two bands: the low or high bytes of one band, each twice, and all of that twice.
struct DoubledIndex {
  alignas(64) std::uint8_t low[2][64];
  alignas(64) std::uint8_t high[2][64];
  constexpr DoubledIndex() : low(), high() {
    for (int band = 0; band < 2; ++band) {
      for (int i = 0; i < 64; ++i) {
        low[band][i] = static_cast<std::uint8_t>(2 * (16 * band + (i & 31) / 2));
        high[band][i] = static_cast<std::uint8_t>(low[band][i] + 1);
      }
    }
  }
};
constexpr DoubledIndex kDoubled;

/// Row pairs of two bands of 16-bit values side by side.
struct HalfIndex {
  alignas(64) std::uint16_t word[32];
  constexpr HalfIndex() : word() {
    for (int w = 0; w < 32; ++w) word[w] = static_cast<std::uint16_t>(16 * (w >> 4) + input_of_word(w));
  }
};
constexpr HalfIndex kHalves;

/// Row pairs from the upper halves of the dwords of two bands, for permutex2var.
struct UpperIndex {
  alignas(64) std::uint16_t word[32];
  constexpr UpperIndex() : word() {
    for (int w = 0; w < 32; ++w) word[w] = static_cast<std::uint16_t>(32 * (w >> 4) + 2 * input_of_word(w) + 1);
  }
};
constexpr UpperIndex kUpperPairs;

/// Four bands as bytes from two packs_epi32, for permutex2var: dword d of band d / 4 is (a_j, a_{j+1}, b_j, b_{j+1}) of
/// row pairs j = 2 (d mod 4) and j + 1.
struct QuadIndex {
  alignas(64) std::uint8_t byte[64];
  constexpr QuadIndex() : byte() {
    for (int i = 0; i < 64; ++i) {
      const int band = i / 16, j = 2 * (i / 4 % 4) + (i & 1), input = pair_row(j) + 4 * (i >> 1 & 1);
      byte[i] = static_cast<std::uint8_t>(64 * (band >> 1) + 2 * packed_place(band & 1, input));
    }
  }
};
constexpr QuadIndex kQuads;

/// The integers of two bands as int16, in packs_epi32 order; adds them to `sum`.
PERGOLA_INLINE __m512i quantise_bands(__m512 band0, __m512 band1, __m512 factor, __m512i& sum) {
  const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(band0, factor));
  const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(band1, factor));
  sum = _mm512_add_epi32(sum, _mm512_add_epi32(a, b));
  return _mm512_packs_epi32(a, b);
}

}  // namespace
}  // namespace pergola
