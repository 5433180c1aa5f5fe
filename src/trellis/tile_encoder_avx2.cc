#include <immintrin.h>

#include "trellis/tile_encoder_step.h"

namespace pergola::viterbi {
namespace {

/// best = min(best, from + (value - weight)^2).
inline __m256 relax(__m256 best, __m256 from, __m256 value, __m256 weight) {
  const __m256 distance = _mm256_sub_ps(value, weight);
  return _mm256_min_ps(best, _mm256_fmadd_ps(distance, distance, from));
}

/// K >= 4: sixteen neighbouring out-nodes share their in-nodes, so one broadcast serves two registers of two tiles.
template <int Bits>
void step_wide(const float* values, const float* from0, const float* from1, __m256 weight0, __m256 weight1, float* to0,
               float* to1) {
  constexpr int kNodes = 1 << (16 - Bits), kBranches = 1 << Bits, kStride = 1 << (16 - 2 * Bits);
  for (int e = 0; e < kNodes; e += 16) {
    const float* low = values + e * kBranches;
    const float* high = low + 8 * kBranches;
    const float* in0 = from0 + (e >> Bits);
    const float* in1 = from1 + (e >> Bits);
    __m256 best00 = _mm256_set1_ps(__builtin_inff()), best01 = best00, best10 = best00, best11 = best00;
    for (int b = 0; b < kBranches; ++b) {
      const __m256 value0 = _mm256_loadu_ps(low + b * 8), value1 = _mm256_loadu_ps(high + b * 8);
      const __m256 cost0 = _mm256_broadcast_ss(in0 + b * kStride), cost1 = _mm256_broadcast_ss(in1 + b * kStride);
      best00 = relax(best00, cost0, value0, weight0);
      best01 = relax(best01, cost0, value1, weight0);
      best10 = relax(best10, cost1, value0, weight1);
      best11 = relax(best11, cost1, value1, weight1);
    }
    _mm256_storeu_ps(to0 + e, best00);
    _mm256_storeu_ps(to0 + e + 8, best01);
    _mm256_storeu_ps(to1 + e, best10);
    _mm256_storeu_ps(to1 + e + 8, best11);
  }
}

/// The in-node costs of eight neighbouring out-nodes: 8 >> K values, each repeated 2^K times.
template <int Bits>
inline __m256 in_costs(const float* in, __m256i lanes) {
  if constexpr (Bits == 3) return _mm256_broadcast_ss(in);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(in)), lanes);
}

/// K <= 3.
template <int Bits>
void step_narrow(const float* values, const float* from0, const float* from1, __m256 weight0, __m256 weight1,
                 float* to0, float* to1) {
  constexpr int kNodes = 1 << (16 - Bits), kBranches = 1 << Bits, kStride = 1 << (16 - 2 * Bits);
  const __m256i lanes = _mm256_srlv_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(Bits));
  for (int e = 0; e < kNodes; e += 8) {
    const float* block = values + e * kBranches;
    const float* in0 = from0 + (e >> Bits);
    const float* in1 = from1 + (e >> Bits);
    __m256 best0 = _mm256_set1_ps(__builtin_inff()), best1 = best0;
    for (int b = 0; b < kBranches; ++b) {
      const __m256 value = _mm256_loadu_ps(block + b * 8);
      best0 = relax(best0, in_costs<Bits>(in0 + b * kStride, lanes), value, weight0);
      best1 = relax(best1, in_costs<Bits>(in1 + b * kStride, lanes), value, weight1);
    }
    _mm256_storeu_ps(to0 + e, best0);
    _mm256_storeu_ps(to1 + e, best1);
  }
}

}  // namespace

void step_avx2(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
               float* to0, float* to1) {
  const __m256 w0 = _mm256_set1_ps(weight0), w1 = _mm256_set1_ps(weight1);
  switch (bits) {
    case 1:
      return step_narrow<1>(values, from0, from1, w0, w1, to0, to1);
    case 2:
      return step_narrow<2>(values, from0, from1, w0, w1, to0, to1);
    case 3:
      return step_narrow<3>(values, from0, from1, w0, w1, to0, to1);
    case 4:
      return step_wide<4>(values, from0, from1, w0, w1, to0, to1);
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
