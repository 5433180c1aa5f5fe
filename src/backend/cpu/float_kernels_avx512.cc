#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own _mm512_undefined_ps
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "backend/cpu/float_kernels.h"

namespace pergola {
namespace {

using Vec = __m512;
constexpr int kWidth = 16;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
constexpr int kDotRows = 4;
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
Vec v_set(float x) { return _mm512_set1_ps(x); }
Vec v_zero() { return _mm512_setzero_ps(); }
Vec v_add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
Vec v_sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
Vec v_mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
Vec v_div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
Vec v_fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// clang-format on
Vec v_max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}  // b when one is NaN
// clang-format off
Vec v_min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
Vec v_round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
Vec v_scale_by_power_of_two(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
__mmask16 mask_of(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1u); }
Vec v_load(const float* p) { return _mm512_loadu_ps(p); }
Vec v_load(const float* p, int lanes) { return _mm512_maskz_loadu_ps(mask_of(lanes), p); }
void v_store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
void v_store(float* p, Vec v, int lanes) { _mm512_mask_storeu_ps(p, mask_of(lanes), v); }
__m256i load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
__m256i load_words(const void* p, int lanes) { return _mm256_maskz_loadu_epi16(mask_of(lanes), p); }
Vec widen_bfloat(__m256i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16)); }
Vec v_load(const HalfBits* p) { return _mm512_cvtph_ps(load_words(p)); }
Vec v_load(const HalfBits* p, int lanes) { return _mm512_cvtph_ps(load_words(p, lanes)); }
Vec v_load(const BFloatBits* p) { return widen_bfloat(load_words(p)); }
Vec v_load(const BFloatBits* p, int lanes) { return widen_bfloat(load_words(p, lanes)); }
void store_words(void* p, __m256i words) { _mm256_storeu_si256(static_cast<__m256i*>(p), words); }
void store_words(void* p, __m256i words, int lanes) { _mm256_mask_storeu_epi16(p, mask_of(lanes), words); }
__m256i narrow_half(Vec v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// clang-format on

__m256i narrow_bfloat(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(is_nan, rounded, quiet), 16));
}

// clang-format off
void v_store(HalfBits* p, Vec v) { store_words(p, narrow_half(v)); }
void v_store(HalfBits* p, Vec v, int lanes) { store_words(p, narrow_half(v), lanes); }
void v_store(BFloatBits* p, Vec v) { store_words(p, narrow_bfloat(v)); }
void v_store(BFloatBits* p, Vec v, int lanes) { store_words(p, narrow_bfloat(v), lanes); }
__m256 halves_added(Vec a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
// clang-format on

/// The four sums of four vectors: the 256-bit halves, within the halves of that ((0 + 1) + (2 + 3)), then those halves.
__m128 sums_of(Vec a, Vec b, Vec c, Vec d) {
  const __m256 ab = _mm256_hadd_ps(halves_added(a), halves_added(b));
  const __m256 cd = _mm256_hadd_ps(halves_added(c), halves_added(d));
  const __m256 quarters = _mm256_hadd_ps(ab, cd);
  return _mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps(quarters, 1));
}

float v_sum(Vec a) {
  return _mm_cvtss_f32(sums_of(a, a, a, a));
}
void v_sum4(float* out, const Vec* v) {
  _mm_storeu_ps(out, sums_of(v[0], v[1], v[2], v[3]));
}

float v_largest(Vec a) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

void v_load4(const float* p, Vec* taps) {
  const Vec p0 = v_load(p), p1 = v_load(p + 16), p2 = v_load(p + 32), p3 = v_load(p + 48);  // four channels each
  const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i odd = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
  const Vec low01 = _mm512_permutex2var_ps(p0, even, p1),
            low23 = _mm512_permutex2var_ps(p0, odd, p1);  // taps 0|1 and 2|3 of channels 0..7
  const Vec high01 = _mm512_permutex2var_ps(p2, even, p3),
            high23 = _mm512_permutex2var_ps(p2, odd, p3);  // of channels 8..15
  taps[0] = _mm512_shuffle_f32x4(low01, high01, 0x44);
  taps[1] = _mm512_shuffle_f32x4(low01, high01, 0xEE);
  taps[2] = _mm512_shuffle_f32x4(low23, high23, 0x44);
  taps[3] = _mm512_shuffle_f32x4(low23, high23, 0xEE);
}

void transpose_8x8(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out) {
  __m256 pair[8], quad[8];
  for (int i = 0; i < 4; ++i) {
    const __m256 a = _mm256_loadu_ps(in + 2 * i * ld_in), b = _mm256_loadu_ps(in + (2 * i + 1) * ld_in);
    pair[2 * i] = _mm256_unpacklo_ps(a, b);
    pair[2 * i + 1] = _mm256_unpackhi_ps(a, b);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256* p = pair + 4 * half;
    quad[4 * half] = _mm256_shuffle_ps(p[0], p[2], 0x44);
    quad[4 * half + 1] = _mm256_shuffle_ps(p[0], p[2], 0xEE);
    quad[4 * half + 2] = _mm256_shuffle_ps(p[1], p[3], 0x44);
    quad[4 * half + 3] = _mm256_shuffle_ps(p[1], p[3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * ld_out, _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x20));
    _mm256_storeu_ps(out + (i + 4) * ld_out, _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x31));
  }
}

void transpose_block(const float* in, std::int64_t ld_in, float* out, std::int64_t ld_out) {
  for (int row = 0; row < 16; row += 8) {
    for (int column = 0; column < 16; column += 8)
      transpose_8x8(in + row * ld_in + column, ld_in, out + column * ld_out + row, ld_out);
  }
}

void v_prefetch(const float* p, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 16) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

#include "backend/cpu/float_kernels_body.h"

constexpr FloatKernels kTable = make_table("avx512");

}  // namespace

const FloatKernels& avx512_float_kernels() {
  return kTable;
}

}  // namespace pergola
