#pragma once

#include <immintrin.h>

#include <cstdint>

// Only for files compiled for AVX2: everything here is inlined.

namespace pergola::avx2 {

#define PERGOLA_INLINE static inline __attribute__((always_inline))

/// 64-point Hadamard transform without its norm, in eight registers of eight neighbouring values.
PERGOLA_INLINE void hadamard_64(__m256* v) {
  // Strides 1, 2 and 4 lie inside a register: the partner plus the value with its sign.
  const __m256 signs1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
  const __m256 signs2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
  const __m256 signs4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
  for (int i = 0; i < 8; ++i) v[i] = _mm256_fmadd_ps(v[i], signs1, _mm256_permute_ps(v[i], 0xB1));
  for (int i = 0; i < 8; ++i) v[i] = _mm256_fmadd_ps(v[i], signs2, _mm256_permute_ps(v[i], 0x4E));
  for (int i = 0; i < 8; ++i) v[i] = _mm256_fmadd_ps(v[i], signs4, _mm256_permute2f128_ps(v[i], v[i], 0x01));
  for (int stride = 1; stride < 8; stride *= 2) {
    for (int i = 0; i < 8; ++i) {
      if ((i & stride) != 0) continue;
      const __m256 a = v[i];
      const __m256 b = v[i + stride];
      v[i] = _mm256_add_ps(a, b);
      v[i + stride] = _mm256_sub_ps(a, b);
    }
  }
}

/// The last step to 128 points: v[0..8) and v[8..16) were transformed on their own, because all sixteen do not fit into
/// the registers.
PERGOLA_INLINE void join_halves(__m256 (&v)[16]) {
  for (int i = 0; i < 8; ++i) {
    const __m256 a = v[i];
    const __m256 b = v[i + 8];
    v[i] = _mm256_add_ps(a, b);
    v[i + 8] = _mm256_sub_ps(a, b);
  }
}

/// Eight binary16 values as float.
PERGOLA_INLINE __m256 load_halves(const void* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(halves)));
}

}  // namespace pergola::avx2
