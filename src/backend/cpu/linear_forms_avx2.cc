// AVX2: input rows to activation forms, and the output transform.

#include <cstring>

#include "backend/cpu/avx2_kernels.h"
#include "backend/cpu/hadamard_avx2.h"

namespace pergola::avx2 {
namespace {

constexpr float kNorm = 0.08838834764831845f;  // 1 / sqrt(128)

/// Hadamard(x * suh) of one chunk without the norm; x has `count` values from here on, the rest are zeros.
PERGOLA_INLINE void transform_chunk(const float* x, std::int64_t count, const Half* suh, __m256 (&v)[16]) {
  alignas(32) float padded[128];
  if (count < 128) {
    std::memset(padded, 0, sizeof padded);
    if (count > 0) std::memcpy(padded, x, static_cast<std::size_t>(count) * sizeof(float));
    x = padded;
  }
  for (int half = 0; half < 16; half += 8) {
    for (int i = half; i < half + 8; ++i) v[i] = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), load_halves(suh + 8 * i));
    hadamard_64(v + half);
  }
  join_halves(v);
}

PERGOLA_INLINE float largest(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}

PERGOLA_INLINE float largest_magnitude(const __m256 (&v)[16]) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 top = _mm256_setzero_ps();
  for (int i = 0; i < 16; ++i) top = _mm256_max_ps(top, _mm256_andnot_ps(sign, v[i]));
  return largest(top);
}

PERGOLA_INLINE std::int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

/// Sixteen int16 rows of a band (0..7 | 8..15) to the pairs (0,4)(1,5)(8,12)(9,13)(2,6)(3,7)(10,14)(11,15).
PERGOLA_INLINE __m256i pair_rows(__m256i rows) {
  const __m256i within = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10,
                                          11, 4, 5, 12, 13, 6, 7, 14, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(rows, within), 0xD8);
}

/// Rounds a transformed chunk to integers of at most kLargest in magnitude; returns their sum and the size of one unit.
template <int kLargest>
PERGOLA_INLINE std::int32_t quantise_chunk(const __m256 (&v)[16], std::int32_t* pairs, float& unit) {
  const float top = largest_magnitude(v);
  unit = top * (kNorm / kLargest);
  const __m256 factor = _mm256_set1_ps(top > 0 ? kLargest / top : 0.0f);
  __m256i sum = _mm256_setzero_si256();
  for (int band = 0; band < 8; ++band) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * band], factor));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * band + 1], factor));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
    const __m256i rows = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + 8 * band), pair_rows(rows));
  }
  return sum_lanes(sum);
}

std::int64_t int_bytes(std::int64_t in_features, std::int64_t rows) {
  return rows * int_row_bytes(in_features);
}

/// Shared by the integer forms. A weight is factor * (integer - kCentre) + residue.
template <int kLargest, int kCentre>
PERGOLA_INLINE void prepare_int(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features,
                                std::int64_t row, std::byte* form, float factor, float residue) {
  const IntRow target = int_row(form, in_features, row);
  auto* pairs = const_cast<std::int32_t*>(target.pairs);
  auto* scales = const_cast<float*>(target.scales);
  auto* starts = const_cast<std::int32_t*>(target.starts);
  const std::int64_t chunks = in_features / 128;
  float offset = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    __m256 v[16];
    transform_chunk(x + 128 * chunk, count - 128 * chunk, suh + 128 * chunk, v);
    float unit;
    const std::int32_t sum = quantise_chunk<kLargest>(v, pairs + 64 * chunk, unit);
    scales[chunk] = unit * factor;
    starts[chunk] = -kCentre * sum;
    offset += unit * residue * static_cast<float>(sum);
  }
  std::memcpy(starts + chunks, &offset, sizeof offset);
}

// mul1: value = sum * 1774/2^18 - 3.453125, taken as (sum - 510) * 1774/2^18 and a small constant. With sums of
// magnitude 510 at most, 128 products with int16 stay inside int32: 510 * 32767 * 128 < 2^31.
constexpr float kMul1Residue = 510 * kMul1Factor + kMul1Offset;

void prepare_mul1(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                  std::int64_t, std::byte* form) {
  prepare_int<32767, 510>(x, count, suh, in_features, row, form, kMul1Factor, kMul1Residue);
}

// mcg and 3inst: units of 2^-10, at most 4068; 4068 * 4095 * 128 < 2^31.
void prepare_int13(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                   std::int64_t, std::byte* form) {
  prepare_int<4095, 0>(x, count, suh, in_features, row, form, 0x1p-10f, 0.0f);
}

std::int64_t float_bytes(std::int64_t in_features, std::int64_t rows) {
  return rows * in_features * 4;
}

/// Pairs of floats in the order of step_pair, times 2^96: the kernel's values are 2^112 too small, and products of
/// small inputs must not become subnormal.
void prepare_floats(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                    std::int64_t, std::byte* form) {
  auto* out = reinterpret_cast<float*>(form) + row * in_features;
  const __m256 norm = _mm256_set1_ps(kNorm * 0x1p96f);
  for (std::int64_t chunk = 0; chunk < in_features / 128; ++chunk) {
    __m256 v[16];
    transform_chunk(x + 128 * chunk, count - 128 * chunk, suh + 128 * chunk, v);
    for (int band = 0; band < 8; ++band, out += 16) {
      const __m256 top = _mm256_mul_ps(v[2 * band], norm);         // rows 0..7
      const __m256 bottom = _mm256_mul_ps(v[2 * band + 1], norm);  // rows 8..15
      const __m128 t0 = _mm256_castps256_ps128(top), t4 = _mm256_extractf128_ps(top, 1);
      const __m128 b8 = _mm256_castps256_ps128(bottom), b12 = _mm256_extractf128_ps(bottom, 1);
      _mm_store_ps(out, _mm_unpacklo_ps(t0, t4));        // (0,4)(1,5)
      _mm_store_ps(out + 4, _mm_unpacklo_ps(b8, b12));   // (8,12)(9,13)
      _mm_store_ps(out + 8, _mm_unpackhi_ps(t0, t4));    // (2,6)(3,7)
      _mm_store_ps(out + 12, _mm_unpackhi_ps(b8, b12));  // (10,14)(11,15)
    }
  }
}

}  // namespace

const ActivationForm kMul1Int16Form{"int16 per 128", int_bytes, prepare_mul1};
const ActivationForm kInt13Form{"int13 per 128", int_bytes, prepare_int13};
const ActivationForm kPairFloatForm{"fp32 pairs", float_bytes, prepare_floats};

void finish_block(float* z, const Half* svh, const float* bias, std::int64_t count, float* out) {
  __m256 v[16];
  for (int half = 0; half < 16; half += 8) {
    for (int i = half; i < half + 8; ++i) v[i] = _mm256_loadu_ps(z + 8 * i);
    hadamard_64(v + half);
  }
  join_halves(v);
  const __m256 norm = _mm256_set1_ps(kNorm);
  float* target = count == 128 ? out : z;
  for (int i = 0; i < 16; ++i) {
    const __m256 scale = _mm256_mul_ps(norm, load_halves(svh + 8 * i));
    _mm256_storeu_ps(target + 8 * i, _mm256_mul_ps(v[i], scale));
  }
  if (count < 128) std::memcpy(out, z, static_cast<std::size_t>(count) * sizeof(float));
  if (bias == nullptr) return;
  for (std::int64_t j = 0; j < count; ++j) out[j] += bias[j];
}

}  // namespace pergola::avx2
