#pragma once

#include <immintrin.h>

#include <cstdint>

// Only for files compiled for AVX2: everything here is inlined.

namespace pergola::avx2 {

#define PERGOLA_INLINE static inline __attribute__((always_inline))

/// 128-point Hadamard transform without its norm, in sixteen registers of eight neighbouring values.
PERGOLA_INLINE void hadamard_registers(__m256 (&v)[16]) {
  for (int stride = 1; stride < 16; stride *= 2) {
    for (int i = 0; i < 16; ++i) {
      if ((i & stride) != 0) continue;
      const __m256 a = v[i];
      const __m256 b = v[i + stride];
      v[i] = _mm256_add_ps(a, b);
      v[i + stride] = _mm256_sub_ps(a, b);
    }
  }
  // Strides 1, 2 and 4 lie inside a register: the partner plus the value with its sign.
  const __m256 signs1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
  const __m256 signs2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
  const __m256 signs4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
  for (int i = 0; i < 16; ++i) {
    v[i] = _mm256_fmadd_ps(v[i], signs1, _mm256_permute_ps(v[i], 0xB1));
    v[i] = _mm256_fmadd_ps(v[i], signs2, _mm256_permute_ps(v[i], 0x4E));
    v[i] = _mm256_fmadd_ps(v[i], signs4, _mm256_permute2f128_ps(v[i], v[i], 0x01));
  }
}

/// Eight binary16 values as float.
PERGOLA_INLINE __m256 load_halves(const void* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(halves)));
}

}  // namespace pergola::avx2
