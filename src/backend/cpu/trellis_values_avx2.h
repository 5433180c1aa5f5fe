#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/hadamard_avx2.h"
#include "trellis/codebook.h"

// Codebooks in registers. Only for files compiled for AVX2: everything here is inlined.

namespace pergola::avx2 {

PERGOLA_INLINE __m256i all16(std::uint32_t value) {
  return _mm256_set1_epi16(static_cast<short>(value));
}
PERGOLA_INLINE __m256i all32(std::uint32_t value) {
  return _mm256_set1_epi32(static_cast<int>(value));
}

/// Low and high halves of state * multiplier for sixteen states: three 16-bit multiplies.
PERGOLA_INLINE void multiply_states(__m256i states, std::uint32_t multiplier, __m256i& low, __m256i& high) {
  low = _mm256_mullo_epi16(states, all16(multiplier));
  high = _mm256_add_epi16(_mm256_mulhi_epu16(states, all16(multiplier)),
                          _mm256_mullo_epi16(states, all16(multiplier >> 16)));
}

/// mul1 byte sums, 0..1020, of sixteen states.
PERGOLA_INLINE __m256i mul1_sums(__m256i states) {
  __m256i low, high;
  multiply_states(states, kMul1Multiplier, low, high);
  const __m256i ones = _mm256_set1_epi8(1);
  return _mm256_add_epi16(_mm256_maddubs_epi16(low, ones), _mm256_maddubs_epi16(high, ones));
}

// mcg and 3inst add two binary16 numbers y = (x & 0x8FFF) ^ 0x3B60. Shifted right by 3 under its sign, a binary16 in
// the upper half of a dword is a float 2^112 times too small: exponents are 5 bits in both, at the lower end of the
// float's 8. All stay normal floats, and their sum is exact.

/// The numbers in the upper halves of dwords, times 2^-112.
PERGOLA_INLINE __m256 upper_halves(__m256i y) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_srai_epi32(y, 3), all32(0x8FFFE000u)));
}

/// The numbers in the lower halves of dwords, times 2^-112: the multiply shifts by 13 and copies the sign in one step.
PERGOLA_INLINE __m256 lower_halves(__m256i y) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_madd_epi16(y, all32(0x2000u)), all32(0x8FFFE000u)));
}

PERGOLA_INLINE __m256i mask_halves(__m256i x) {
  return _mm256_xor_si256(_mm256_and_si256(x, all32(0x8FFF8FFFu)), all32(0x3B603B60u));
}

/// Values of sixteen states before their rounding to binary16, times 2^-112: `upper` of the low halfwords' row, `lower`
/// of the row four below.
template <Codebook codebook>
PERGOLA_INLINE void float_values(__m256i states, __m256& upper, __m256& lower) {
  if constexpr (codebook == Codebook::mcg) {
    __m256i low, high;
    multiply_states(states, kMcgMultiplier, low, high);
    low = mask_halves(low);
    high = mask_halves(high);
    upper = _mm256_add_ps(lower_halves(low), lower_halves(high));
    lower = _mm256_add_ps(upper_halves(low), upper_halves(high));
  } else {
    // The addend's carry is cheaper in 32-bit lanes.
    const __m256i a = _mm256_mullo_epi32(_mm256_and_si256(states, all32(0xFFFFu)), all32(kThreeInstMultiplier));
    const __m256i b = _mm256_mullo_epi32(_mm256_srli_epi32(states, 16), all32(kThreeInstMultiplier));
    const __m256i ya = mask_halves(_mm256_add_epi32(a, all32(kThreeInstAddend)));
    const __m256i yb = mask_halves(_mm256_add_epi32(b, all32(kThreeInstAddend)));
    upper = _mm256_add_ps(lower_halves(ya), upper_halves(ya));
    lower = _mm256_add_ps(lower_halves(yb), upper_halves(yb));
  }
}

/// Sixteen states as int16 weights: mul1 byte sums, or mcg and 3inst in units of 2^-10.
template <Codebook codebook>
PERGOLA_INLINE __m256i int_values(__m256i states) {
  if constexpr (codebook == Codebook::mul1) {
    return mul1_sums(states);
  } else {
    __m256 upper, lower;
    float_values<codebook>(states, upper, lower);
    const __m256 unit = _mm256_set1_ps(0x1p122f);
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(upper, unit));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(lower, unit));
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
  }
}

}  // namespace pergola::avx2
