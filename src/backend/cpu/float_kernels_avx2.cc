#include <immintrin.h>

#include "backend/cpu/float_kernels.h"

namespace pergola {
namespace {

using Vec = __m256;
constexpr int kWidth = 8;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
constexpr int kDotRows = 2;
constexpr int kDotColumns = 4;
constexpr int kStateVectors = 4;
constexpr std::int64_t kStatePrefetchRows = 8;

struct HalfBits {
  std::uint16_t value;
};
struct BFloatBits {
  std::uint16_t value;
};

// clang-format off
Vec v_set(float x) { return _mm256_set1_ps(x); }
Vec v_zero() { return _mm256_setzero_ps(); }
Vec v_add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
Vec v_sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
Vec v_mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
Vec v_div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
Vec v_fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
// clang-format on
Vec v_max(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}  // b when one is NaN
Vec v_min(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
Vec v_round(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/// x 2^n for integral n, in two steps so that neither factor leaves the normal range.
Vec v_scale_by_power_of_two(Vec x, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}

__m256i mask_of(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// clang-format off
Vec v_load(const float* p) { return _mm256_loadu_ps(p); }
Vec v_load(const float* p, int lanes) { return _mm256_maskload_ps(p, mask_of(lanes)); }
void v_store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
void v_store(float* p, Vec v, int lanes) { _mm256_maskstore_ps(p, mask_of(lanes), v); }
__m128i load_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
// clang-format on

__m128i load_words(const void* p, int lanes) {
  alignas(16) std::uint16_t words[8] = {};
  __builtin_memcpy(words, p, static_cast<std::size_t>(lanes) * 2);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(words));
}

// clang-format off
Vec widen_bfloat(__m128i words) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16)); }
Vec v_load(const HalfBits* p) { return _mm256_cvtph_ps(load_words(p)); }
Vec v_load(const HalfBits* p, int lanes) { return _mm256_cvtph_ps(load_words(p, lanes)); }
Vec v_load(const BFloatBits* p) { return widen_bfloat(load_words(p)); }
Vec v_load(const BFloatBits* p, int lanes) { return widen_bfloat(load_words(p, lanes)); }
void store_words(void* p, __m128i words) { _mm_storeu_si128(static_cast<__m128i*>(p), words); }
// clang-format on
void store_words(void* p, __m128i words, int lanes) {
  __builtin_memcpy(p, &words, static_cast<std::size_t>(lanes) * 2);
}

__m128i narrow_half(Vec v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}

__m128i narrow_bfloat(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// clang-format off
void v_store(HalfBits* p, Vec v) { store_words(p, narrow_half(v)); }
void v_store(HalfBits* p, Vec v, int lanes) { store_words(p, narrow_half(v), lanes); }
void v_store(BFloatBits* p, Vec v) { store_words(p, narrow_bfloat(v)); }
void v_store(BFloatBits* p, Vec v, int lanes) { store_words(p, narrow_bfloat(v), lanes); }
// clang-format on

/// The four sums of four vectors: within the two halves ((0 + 1) + (2 + 3)), then the halves.
__m128 sums_of(Vec a, Vec b, Vec c, Vec d) {
  const Vec quarters = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps(quarters, 1));
}

float v_sum(Vec a) {
  return _mm_cvtss_f32(sums_of(a, a, a, a));
}
void v_sum4(float* out, const Vec* v) {
  _mm_storeu_ps(out, sums_of(v[0], v[1], v[2], v[3]));
}

float v_largest(Vec a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

void v_load4(const float* p, Vec* taps) {
  const Vec p0 = v_load(p), p1 = v_load(p + 8), p2 = v_load(p + 16), p3 = v_load(p + 24);
  const Vec a = _mm256_permute2f128_ps(p0, p2, 0x20);  // channels 0 | 4
  const Vec b = _mm256_permute2f128_ps(p0, p2, 0x31);  // 1 | 5
  const Vec c = _mm256_permute2f128_ps(p1, p3, 0x20);  // 2 | 6
  const Vec d = _mm256_permute2f128_ps(p1, p3, 0x31);  // 3 | 7
  const Vec ab_low = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
  const Vec cd_low = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
  taps[0] = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
  taps[1] = _mm256_shuffle_ps(ab_low, cd_low, 0xEE);
  taps[2] = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
  taps[3] = _mm256_shuffle_ps(ab_high, cd_high, 0xEE);
}

void transpose_block(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out) {
  Vec pair[8], quad[8];
  for (int i = 0; i < 4; ++i) {
    const Vec a = v_load(in + 2 * i * ld_in), b = v_load(in + (2 * i + 1) * ld_in);
    pair[2 * i] = _mm256_unpacklo_ps(a, b);
    pair[2 * i + 1] = _mm256_unpackhi_ps(a, b);
  }
  for (int half = 0; half < 2; ++half) {
    const Vec* p = pair + 4 * half;
    quad[4 * half] = _mm256_shuffle_ps(p[0], p[2], 0x44);
    quad[4 * half + 1] = _mm256_shuffle_ps(p[0], p[2], 0xEE);
    quad[4 * half + 2] = _mm256_shuffle_ps(p[1], p[3], 0x44);
    quad[4 * half + 3] = _mm256_shuffle_ps(p[1], p[3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    v_store(out + i * ld_out, _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x20));
    v_store(out + (i + 4) * ld_out, _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x31));
  }
}

void v_prefetch(const float* p, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 16) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

#include "backend/cpu/float_kernels_body.h"

constexpr FloatKernels kTable = make_table("avx2");

}  // namespace

const FloatKernels& avx2_float_kernels() {
  return kTable;
}

}  // namespace pergola
