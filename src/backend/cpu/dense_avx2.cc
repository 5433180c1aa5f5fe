// AVX2 products with dense weights of any float type, converted on the fly.

#include <immintrin.h>

#include <cstring>

#include "backend/cpu/avx2_kernels.h"
#include "backend/cpu/hadamard_avx2.h"

namespace pergola::avx2 {
namespace {

/// Inputs that are converted and multiplied at a time: eight columns of them fit into L1.
constexpr std::int64_t kSpan = 512;

struct LoadF32 {
  static constexpr std::int64_t kBytes = 4;
  PERGOLA_INLINE __m256 eight(const std::byte* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
};

struct LoadF16 {
  static constexpr std::int64_t kBytes = 2;
  PERGOLA_INLINE __m256 eight(const std::byte* at) { return load_halves(at); }
};

struct LoadBf16 {
  static constexpr std::int64_t kBytes = 2;
  PERGOLA_INLINE __m256 eight(const std::byte* at) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

PERGOLA_INLINE float sum_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_movehdup_ps(s));
  return _mm_cvtss_f32(s);
}

/// Eight values of which only `count` exist; the others are zero.
template <typename Load>
PERGOLA_INLINE __m256 load_some(const std::byte* at, std::int64_t count) {
  alignas(32) std::byte buffer[8 * Load::kBytes] = {};
  std::memcpy(buffer, at, static_cast<std::size_t>(count * Load::kBytes));
  return Load::eight(buffer);
}

/// Products of `kRows` rows and `kColumns` weight rows over one span. A sum is one chain of eight lanes whatever kRows
/// and kColumns are, so a row's result does not depend on how rows were grouped.
template <typename Load, int kRows, int kColumns>
PERGOLA_INLINE void multiply_span(const std::byte* w, std::int64_t w_stride, const float* x, std::int64_t x_stride,
                                  std::int64_t count, bool first, float* out, std::int64_t out_stride) {
  __m256 sums[kRows][kColumns];
  for (auto& row : sums) {
    for (__m256& sum : row) sum = _mm256_setzero_ps();
  }
  const auto add = [&](const __m256(&a)[kRows], const __m256(&b)[kColumns]) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) sums[r][c] = _mm256_fmadd_ps(a[r], b[c], sums[r][c]);
    }
  };
  __m256 a[kRows];
  __m256 b[kColumns];
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int r = 0; r < kRows; ++r) a[r] = _mm256_loadu_ps(x + r * x_stride + i);
    for (int c = 0; c < kColumns; ++c) b[c] = Load::eight(w + c * w_stride + i * Load::kBytes);
    add(a, b);
  }
  if (i < count) {
    for (int r = 0; r < kRows; ++r) {
      a[r] = load_some<LoadF32>(reinterpret_cast<const std::byte*>(x + r * x_stride + i), count - i);
    }
    for (int c = 0; c < kColumns; ++c) b[c] = load_some<Load>(w + c * w_stride + i * Load::kBytes, count - i);
    add(a, b);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      float& target = out[r * out_stride + c];
      target = (first ? 0.0f : target) + sum_lanes(sums[r][c]);
    }
  }
}

template <typename Load, int kRows>
PERGOLA_INLINE void multiply_columns(const std::byte* w, std::int64_t w_stride, std::int64_t columns, const float* x,
                                     std::int64_t x_stride, std::int64_t count, bool first, float* out,
                                     std::int64_t out_stride) {
  std::int64_t j = 0;
  for (; j + 4 <= columns; j += 4) {
    multiply_span<Load, kRows, 4>(w + j * w_stride, w_stride, x, x_stride, count, first, out + j, out_stride);
  }
  for (; j < columns; ++j) {
    multiply_span<Load, kRows, 1>(w + j * w_stride, w_stride, x, x_stride, count, first, out + j, out_stride);
  }
}

/// Two rows and four columns at a time: eight sums (twelve, with three rows, made the compiler spill). `w` holds one
/// span of up to kSpan inputs.
template <typename Load>
PERGOLA_INLINE void multiply_rows(const std::byte* w, std::int64_t w_stride, std::int64_t columns, const float* x,
                                  std::int64_t x_stride, std::int64_t rows, std::int64_t count, bool first, float* out,
                                  std::int64_t out_stride) {
  std::int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    multiply_columns<Load, 2>(w, w_stride, columns, x + r * x_stride, x_stride, count, first, out + r * out_stride,
                              out_stride);
  }
  for (; r < rows; ++r) {
    multiply_columns<Load, 1>(w, w_stride, columns, x + r * x_stride, x_stride, count, first, out + r * out_stride,
                              out_stride);
  }
}

/// Converts `columns` weight rows of `count` inputs to fp32, rows kSpan apart.
template <typename Load>
PERGOLA_INLINE void convert(const std::byte* w, std::int64_t w_stride, std::int64_t columns, std::int64_t count,
                            float* out) {
  for (std::int64_t j = 0; j < columns; ++j) {
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
      _mm256_store_ps(out + j * kSpan + i, Load::eight(w + j * w_stride + i * Load::kBytes));
    if (i < count)
      _mm256_store_ps(out + j * kSpan + i, load_some<Load>(w + j * w_stride + i * Load::kBytes, count - i));
  }
}

template <typename Load>
void multiply_dense(const std::byte* w, std::int64_t in_features, std::int64_t columns, const float* x,
                    std::int64_t x_stride, std::int64_t rows, float* out, std::int64_t out_stride) {
  constexpr std::int64_t kConverted = 8;  // weight rows converted at a time
  const std::int64_t w_stride = in_features * Load::kBytes;
  alignas(32) float converted[kConverted * kSpan];
  for (std::int64_t at = 0; at < in_features; at += kSpan) {
    const std::int64_t count = in_features - at < kSpan ? in_features - at : kSpan;
    const std::byte* span = w + at * Load::kBytes;
    const bool first = at == 0;
    if (rows < 4 || Load::kBytes == 4) {
      multiply_rows<Load>(span, w_stride, columns, x + at, x_stride, rows, count, first, out, out_stride);
      continue;
    }
    for (std::int64_t j = 0; j < columns; j += kConverted) {
      const std::int64_t some = columns - j < kConverted ? columns - j : kConverted;
      convert<Load>(span + j * w_stride, w_stride, some, count, converted);
      multiply_rows<LoadF32>(reinterpret_cast<const std::byte*>(converted), kSpan * 4, some, x + at, x_stride, rows,
                             count, first, out + j, out_stride);
    }
  }
}

}  // namespace

void add_dense_kernels(KernelTable& table) {
  table.dense_f32 = multiply_dense<LoadF32>;
  table.dense_f16 = multiply_dense<LoadF16>;
  table.dense_bf16 = multiply_dense<LoadBf16>;
}

}  // namespace pergola::avx2
