#include "backend/cpu/forms_avx512.h"

#include "backend/cpu/hadamard_avx512.h"
#include "backend/cpu/pair_order_avx512.h"

namespace pergola {
namespace {

// --- a row of blocks
// ---------------------------------------------------------------------------------------------------------------------

/// Where the parts of a vector-form row lie.
struct VectorRow {
  std::byte* values;
  float* scales;
  std::int32_t* sums;
  float* total;

  PERGOLA_INLINE VectorRow(std::byte* form, std::int64_t in_features, std::int64_t row) {
    values = form + row * vector_row_bytes(in_features);
    scales = reinterpret_cast<float*>(values + vector_scales_offset(in_features));
    sums = reinterpret_cast<std::int32_t*>(values + vector_sums_offset(in_features));
    total = reinterpret_cast<float*>(values + vector_total_offset(in_features));
  }
};

PERGOLA_INLINE float largest_magnitude(const Block128& v) {
  __m512 m = _mm512_abs_ps(v.at[0]);
  for (int i = 1; i < 8; ++i) m = _mm512_max_ps(m, _mm512_abs_ps(v.at[i]));
  return _mm512_reduce_max_ps(m);
}

PERGOLA_INLINE float sum_of_magnitudes(const Block128& v) {
  __m512 a = _mm512_abs_ps(v.at[0]), b = _mm512_abs_ps(v.at[1]);
  for (int i = 2; i < 8; i += 2) {
    a = _mm512_add_ps(a, _mm512_abs_ps(v.at[i]));
    b = _mm512_add_ps(b, _mm512_abs_ps(v.at[i + 1]));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(a, b));
}

/// 1 / scale, 0 for a block of zeros.
PERGOLA_INLINE float inverse(float scale) {
  return scale > 0.0f ? 1.0f / scale : 0.0f;
}

// --- vector forms
// --------------------------------------------------------------------------------------------------------------------------

std::int64_t vector_form_bytes(std::int64_t in_features, std::int64_t rows) {
  return rows * vector_row_bytes(in_features);
}

/// How the integers of a chunk are stored.
struct StoreInt16 {
  static constexpr float kLargest = 32767.0f;
  static PERGOLA_INLINE __m512i order(__m512i packed) {
    return _mm512_permutexvar_epi16(_mm512_load_si512(kPairs.word), packed);
  }
};
struct StoreInt8Twice {
  static constexpr float kLargest = 127.0f;
  static PERGOLA_INLINE __m512i order(__m512i packed) {
    return _mm512_permutexvar_epi8(_mm512_load_si512(kPairs.twice), packed);
  }
};

/// kWeight: the largest integer weight where it limits the scale, else 0.
template <typename Store, int kWeight>
void prepare_integers(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                      std::int64_t, std::byte* form) {
  const VectorRow out(form, in_features, row);
  float total = 0.0f;
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    const std::int64_t first = chunk * kChunkRows;
    const Block128 v = transformed_input(x + first, count - first, suh + first);
    float scale = largest_magnitude(v) * (1.0f / Store::kLargest);
    if constexpr (kWeight != 0) {
      const float limit = sum_of_magnitudes(v) * (static_cast<float>(kWeight) / 2147000000.0f);
      scale = limit > scale ? limit : scale;
    }
    const __m512 factor = _mm512_set1_ps(inverse(scale));
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) {
      const __m512i packed = quantise_bands(v.at[2 * i], v.at[2 * i + 1], factor, sum);
      _mm512_store_si512(out.values + first * 2 + 64 * i, Store::order(packed));
    }
    const int integers = _mm512_reduce_add_epi32(sum);
    out.scales[chunk] = scale * kTransformNorm;
    out.sums[chunk] = integers;
    total += out.scales[chunk] * static_cast<float>(integers);
  }
  *out.total = total;
}

void prepare_quads(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                   std::int64_t, std::byte* form) {
  const VectorRow out(form, in_features, row);
  float total = 0.0f;
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    const std::int64_t first = chunk * kChunkRows;
    const Block128 v = transformed_input(x + first, count - first, suh + first);
    const float scale = largest_magnitude(v) * (1.0f / 127.0f);
    const __m512 factor = _mm512_set1_ps(inverse(scale));
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 2; ++i) {
      const __m512i bands01 = quantise_bands(v.at[4 * i], v.at[4 * i + 1], factor, sum);
      const __m512i bands23 = quantise_bands(v.at[4 * i + 2], v.at[4 * i + 3], factor, sum);
      _mm512_store_si512(out.values + first + 64 * i,
                         _mm512_permutex2var_epi8(bands01, _mm512_load_si512(kQuads.byte), bands23));
    }
    out.scales[chunk] = scale * kTransformNorm;
    out.sums[chunk] = _mm512_reduce_add_epi32(sum);
    total += out.scales[chunk] * static_cast<float>(out.sums[chunk]);
  }
  *out.total = total;
}

void prepare_halves(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                    std::int64_t, std::byte* form) {
  const VectorRow out(form, in_features, row);
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    const std::int64_t first = chunk * kChunkRows;
    const Block128 v = transformed_input(x + first, count - first, suh + first);
    const float scale = largest_magnitude(v) * (1.0f / 16.0f);
    const __m512 factor = _mm512_set1_ps(inverse(scale));
    for (int i = 0; i < 4; ++i) {
      const __m256i a =
          _mm512_cvtps_ph(_mm512_mul_ps(v.at[2 * i], factor), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      const __m256i b =
          _mm512_cvtps_ph(_mm512_mul_ps(v.at[2 * i + 1], factor), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
      _mm512_store_si512(out.values + first * 2 + 64 * i,
                         _mm512_permutexvar_epi16(_mm512_load_si512(kHalves.word), both));
    }
    out.scales[chunk] = scale * kTransformNorm;
    out.sums[chunk] = 0;
  }
  *out.total = 0.0f;
}

}  // namespace

constexpr ActivationForm kInt16Form{"int16 per 128", vector_form_bytes, prepare_integers<StoreInt16, 0>};
constexpr ActivationForm kInt16Halves12Form{"int16 per 128, for 14 bit weights", vector_form_bytes,
                                            prepare_integers<StoreInt16, 1 << 14>};
constexpr ActivationForm kInt16Halves13Form{"int16 per 128, for 15 bit weights", vector_form_bytes,
                                            prepare_integers<StoreInt16, 1 << 15>};
constexpr ActivationForm kInt8PairForm{"int8 per 128", vector_form_bytes, prepare_integers<StoreInt8Twice, 0>};
constexpr ActivationForm kInt8QuadForm{"int8 quads per 128", vector_form_bytes, prepare_quads};
constexpr ActivationForm kHalfPairForm{"fp16 per 128", vector_form_bytes, prepare_halves};

// --- outputs
// -------------------------------------------------------------------------------------------------------------------------------

void finish_block_avx512(float* z, const Half* svh, const float* bias, std::int64_t count, float* out) {
  Block128 v;
  for (int i = 0; i < 8; ++i) v.at[i] = _mm512_loadu_ps(z + 16 * i);
  transform(v);
  const __m512 norm = _mm512_set1_ps(kTransformNorm);
  for (int i = 0; i < 8; ++i) {
    const __mmask16 lanes = first_lanes(count - 16 * i);
    const __m512 scale = _mm512_mul_ps(load_halves(svh + 16 * i), norm);
    const __m512 added = bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, bias + 16 * i);
    _mm512_mask_storeu_ps(out + 16 * i, lanes, _mm512_fmadd_ps(v.at[i], scale, added));
  }
}

}  // namespace pergola
