#pragma once

// The 128-point Hadamard transform in eight AVX-512 registers. Internal linkage: see trellis_avx512.h.

#include <immintrin.h>

#include <cstdint>

#include "base/half.h"

namespace pergola {
namespace {

/// 128 values of a block in natural order.
struct Block128 {
  __m512 at[8];
};

constexpr float kTransformNorm = 0.08838834764831845f;  // 1 / sqrt(128)

/// Lane i: +1 where bit `bit` of i is clear, -1 where it is set.
inline __attribute__((always_inline)) __m512 butterfly_signs(int bit) {
  alignas(64) static constexpr float kSigns[4][16] = {
      {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
  };
  return _mm512_load_ps(kSigns[bit]);
}

/// H v, not normalised. Strides 16, 32, 64 lie between registers; strides 1..8 are v * (+-1) + swapped v, one permute
/// and one FMA.
inline __attribute__((always_inline)) void transform(Block128& v) {
  for (int stride = 1; stride < 8; stride *= 2) {
    for (int i = 0; i < 8; ++i) {
      if ((i & stride) != 0) continue;
      const __m512 a = v.at[i], b = v.at[i + stride];
      v.at[i] = _mm512_add_ps(a, b);
      v.at[i + stride] = _mm512_sub_ps(a, b);
    }
  }
  const __m512 s0 = butterfly_signs(0), s1 = butterfly_signs(1), s2 = butterfly_signs(2), s3 = butterfly_signs(3);
  for (__m512& r : v.at) {
    r = _mm512_fmadd_ps(r, s0, _mm512_permute_ps(r, 0xB1));
    r = _mm512_fmadd_ps(r, s1, _mm512_permute_ps(r, 0x4E));
    r = _mm512_fmadd_ps(r, s2, _mm512_shuffle_f32x4(r, r, 0xB1));
    r = _mm512_fmadd_ps(r, s3, _mm512_shuffle_f32x4(r, r, 0x4E));
  }
}

/// Sixteen halves as float.
inline __attribute__((always_inline)) __m512 load_halves(const Half* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

/// A mask of the first `count` of 16 lanes; count may be negative or large.
inline __attribute__((always_inline)) __mmask16 first_lanes(std::int64_t count) {
  return count >= 16 ? __mmask16{0xFFFF} : count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << count) - 1);
}

/// H (x * suh) of one block, not normalised; x has `count` values, the rest counts as zeros.
inline __attribute__((always_inline)) Block128 transformed_input(const float* x, std::int64_t count, const Half* suh) {
  Block128 v;
  if (count >= 128) {
    for (int i = 0; i < 8; ++i) v.at[i] = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), load_halves(suh + 16 * i));
  } else {
    for (int i = 0; i < 8; ++i) {
      v.at[i] =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(count - 16 * i), x + 16 * i), load_halves(suh + 16 * i));
    }
  }
  transform(v);
  return v;
}

}  // namespace
}  // namespace pergola
