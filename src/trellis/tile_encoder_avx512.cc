#include <immintrin.h>

#include "trellis/tile_encoder_step.h"

namespace pergola::viterbi {
namespace {

/// best = min(best, from + (value - weight)^2).
inline __m512 relax(__m512 best, __m512 from, __m512 value, __m512 weight) {
  const __m512 distance = _mm512_sub_ps(value, weight);
  return _mm512_min_ps(best, _mm512_fmadd_ps(distance, distance, from));
}

/// K >= 5: thirty-two neighbouring out-nodes share their in-nodes, so one broadcast serves two registers of two tiles.
template <int Bits>
void step_wide(const float* values, const float* from0, const float* from1, __m512 weight0, __m512 weight1, float* to0,
               float* to1) {
  constexpr int kNodes = 1 << (16 - Bits), kBranches = 1 << Bits, kStride = 1 << (16 - 2 * Bits);
  for (int e = 0; e < kNodes; e += 32) {
    const float* low = values + e * kBranches;
    const float* high = low + 16 * kBranches;
    const float* in0 = from0 + (e >> Bits);
    const float* in1 = from1 + (e >> Bits);
    __m512 best00 = _mm512_set1_ps(__builtin_inff()), best01 = best00, best10 = best00, best11 = best00;
    for (int b = 0; b < kBranches; ++b) {
      const __m512 value0 = _mm512_loadu_ps(low + b * 16), value1 = _mm512_loadu_ps(high + b * 16);
      const __m512 cost0 = _mm512_set1_ps(in0[b * kStride]), cost1 = _mm512_set1_ps(in1[b * kStride]);
      best00 = relax(best00, cost0, value0, weight0);
      best01 = relax(best01, cost0, value1, weight0);
      best10 = relax(best10, cost1, value0, weight1);
      best11 = relax(best11, cost1, value1, weight1);
    }
    _mm512_storeu_ps(to0 + e, best00);
    _mm512_storeu_ps(to0 + e + 16, best01);
    _mm512_storeu_ps(to1 + e, best10);
    _mm512_storeu_ps(to1 + e + 16, best11);
  }
}

/// The in-node costs of sixteen neighbouring out-nodes: 16 >> K values, each repeated 2^K times (one value for K >= 4).
template <int Bits>
__m512 in_costs(const float* in, __m512i lanes) {
  if constexpr (Bits >= 4) return _mm512_set1_ps(in[0]);
  if constexpr (Bits == 1) return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(_mm256_loadu_ps(in)));
  return _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_loadu_ps(in)));
}

template <int Bits>
void step_narrow(const float* values, const float* from0, const float* from1, __m512 weight0, __m512 weight1,
                 float* to0, float* to1) {
  constexpr int kNodes = 1 << (16 - Bits), kBranches = 1 << Bits, kStride = 1 << (16 - 2 * Bits);
  const __m512i lanes =
      _mm512_srli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), Bits);
  for (int e = 0; e < kNodes; e += 16) {
    const float* block = values + e * kBranches;
    const float* in0 = from0 + (e >> Bits);
    const float* in1 = from1 + (e >> Bits);
    __m512 best0 = _mm512_set1_ps(__builtin_inff()), best1 = best0;
    for (int b = 0; b < kBranches; ++b) {
      const __m512 value = _mm512_loadu_ps(block + b * 16);
      best0 = relax(best0, in_costs<Bits>(in0 + b * kStride, lanes), value, weight0);
      best1 = relax(best1, in_costs<Bits>(in1 + b * kStride, lanes), value, weight1);
    }
    _mm512_storeu_ps(to0 + e, best0);
    _mm512_storeu_ps(to1 + e, best1);
  }
}

}  // namespace

void step_avx512(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
                 float* to0, float* to1) {
  const __m512 w0 = _mm512_set1_ps(weight0), w1 = _mm512_set1_ps(weight1);
  switch (bits) {
    case 1:
      return step_narrow<1>(values, from0, from1, w0, w1, to0, to1);
    case 2:
      return step_narrow<2>(values, from0, from1, w0, w1, to0, to1);
    case 3:
      return step_narrow<3>(values, from0, from1, w0, w1, to0, to1);
    case 4:
      return step_narrow<4>(values, from0, from1, w0, w1, to0, to1);
    case 5:
      return step_wide<5>(values, from0, from1, w0, w1, to0, to1);
    case 6:
      return step_wide<6>(values, from0, from1, w0, w1, to0, to1);
    case 7:
      return step_wide<7>(values, from0, from1, w0, w1, to0, to1);
    default:
      return step_wide<8>(values, from0, from1, w0, w1, to0, to1);
  }
}

}  // namespace pergola::viterbi
