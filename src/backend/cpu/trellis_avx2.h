#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cpu/hadamard_avx2.h"
#include "backend/cpu/packed_matrix.h"

// States of a strip in registers. Only for files compiled for AVX2: everything here is inlined.

namespace pergola::avx2 {

template <typename Use, int... T>
PERGOLA_INLINE void for_steps(Use&& use, std::integer_sequence<int, T...>) {
  (use(std::integral_constant<int, T>{}), ...);
}

/// Calls use(step, states) for the sixteen steps of one tile (eight lanes of a piece): each halfword of `states` is one
/// 16-bit state, the low ones of row step_row(step), the high ones four rows below. `planes` points at the tile's part
/// of plane 0; planes are 64 bytes apart.
template <int K, typename Use>
PERGOLA_INLINE void for_states(const std::byte* planes, Use&& use) {
  __m256i w[K + 1];
  for (int i = 0; i < K; ++i) w[i + 1] = _mm256_load_si256(reinterpret_cast<const __m256i*>(planes + 64 * i));
  // The plane before the first: the lane to the left ends where this one begins, its low half ends where its high half
  // begins.
  const __m256i left = _mm256_permutevar8x32_epi32(w[K], _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6));
  w[0] = _mm256_or_si256(_mm256_srli_epi32(left, 16), _mm256_slli_epi32(w[K], 16));
  for_steps(
      [&](auto step) __attribute__((always_inline)) {
        constexpr int i = window_index(K, decltype(step)::value);
        constexpr int shift = window_shift(K, decltype(step)::value);
        if constexpr (shift == 0) {
          use(step, w[i + 1]);
        } else {
          use(step, _mm256_or_si256(_mm256_srli_epi16(w[i + 1], shift), _mm256_slli_epi16(w[i], 16 - shift)));
        }
      },
      std::make_integer_sequence<int, kSteps>{});
}

/// Asks for the lines of one piece that will be read later: into L2 far ahead, into L1 shortly before. Both are needed;
/// each alone reaches about half of the memory's speed.
template <int K>
PERGOLA_INLINE void prefetch_piece(const std::byte* piece) {
  for (int i = 0; i < K; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + 3072), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + 512), _MM_HINT_T0);
  }
}

}  // namespace pergola::avx2
