#pragma once

// One to sixteen rows with AVX-512 vectors: every decoded weight is used by all rows of a pass. Internal linkage: see
// trellis_avx512.h.

#include "backend/cpu/forms_avx512.h"
#include "backend/cpu/trellis_avx512.h"

namespace pergola {
namespace {

/// One row of a vector form.
struct VectorInput {
  const std::int32_t* pairs;
  const float* scales;
  const std::int32_t* sums;
  float total;

  PERGOLA_INLINE VectorInput() = default;
  PERGOLA_INLINE VectorInput(const std::byte* form, std::int64_t in_features, std::int64_t row) {
    const std::byte* at = form + row * vector_row_bytes(in_features);
    pairs = reinterpret_cast<const std::int32_t*>(at);
    scales = reinterpret_cast<const float*>(at + vector_scales_offset(in_features));
    sums = reinterpret_cast<const std::int32_t*>(at + vector_sums_offset(in_features));
    total = *reinterpret_cast<const float*>(at + vector_total_offset(in_features));
  }
};

/// How a product of 32 states is multiplied with the pairs of a row. ByteSumWeights and its like: one dot product of
/// int16 pairs.
template <typename Weights>
struct PairProducts : Weights {
  using Operand = __m512i;
  static PERGOLA_INLINE Operand operand(const Product& x) { return Weights::from(x); }
  static PERGOLA_INLINE __m512i multiply(__m512i sum, Operand w, __m512i pair) {
    return _mm512_dpwssd_epi32(sum, w, pair);
  }
};

/// MUL1 with int8 activations: the bytes of the product are multiplied as they stand, their sum is the weight.
struct ByteProducts : ByteSumWeights {
  using Operand = Product;
  static PERGOLA_INLINE Operand operand(const Product& x) { return x; }
  static PERGOLA_INLINE __m512i multiply(__m512i sum, const Operand& w, __m512i pair) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, w.low, pair), w.high, pair);
  }
};

/// `rows` <= kRows rows of z from the streams [first_stream, first_stream + kStreams) of a block. Sums of a chunk are
/// int32 and exact; chunks are added in fp32 in order. Rows beyond `rows` repeat the last one and are not stored.
template <typename Products, int K, int kRows, int kStreams>
void multiply_rows_pass(const std::byte* block, std::int64_t in_features, int first_stream, const VectorInput* inputs,
                        std::int64_t rows, float* z) {
  constexpr int kSums = 2 * kStreams;
  const std::int64_t stream_bytes = stream_bytes_of<K>(in_features);
  const std::byte* stream = block + first_stream * stream_bytes;
  alignas(64) float total[2][kRows][kSums][16] = {};  // [strip][row][stream and half][lane]
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    for (int strip = 0; strip < 2; ++strip) {
      const std::int64_t position = (2 * chunk + strip) * kRunBytes<K>;
      const Ahead ahead(position, stream_bytes);
      __m512i sums[kRows][kSums];
      for (int r = 0; r < kRows; ++r) {
        for (int s = 0; s < kSums; ++s) sums[r][s] = _mm512_set1_epi32(-Products::kCentre * inputs[r].sums[chunk]);
      }
      for (int band = 0; band < kBandsPerChunk; ++band) {
        const std::int64_t first_pair = (chunk * kBandsPerChunk + band) * 8;
#pragma GCC unroll 2
        for (int s = 0; s < kStreams; ++s) {
          const std::byte* piece = stream + s * stream_bytes + position + band * piece_bytes(K);
          prefetch_piece<K>(piece, ahead);
          const Planes<K> planes = load_planes<K>(piece);
          for_pairs([&](auto pair) __attribute__((always_inline)) {
            using P = decltype(pair);
            const auto w0 = Products::operand(multiply_states<Products::kCodebook>(states<K, P::kStep0>(planes)));
            const auto w1 = Products::operand(multiply_states<Products::kCodebook>(states<K, P::kStep1>(planes)));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const __m512i x = _mm512_set1_epi32(inputs[r].pairs[first_pair + P::kIndex]);
              sums[r][2 * s] = Products::multiply(sums[r][2 * s], w0, x);
              sums[r][2 * s + 1] = Products::multiply(sums[r][2 * s + 1], w1, x);
            }
          });
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512 scale = _mm512_set1_ps(inputs[r].scales[chunk]);
        for (int s = 0; s < kSums; ++s) {
          float* t = total[strip][r][s];
          _mm512_store_ps(t, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][s]), scale, _mm512_load_ps(t)));
        }
      }
    }
  }
  const __m512 unit = _mm512_set1_ps(Products::kUnit);
  for (std::int64_t r = 0; r < rows; ++r) {
    const __m512 offset = _mm512_set1_ps(Products::kOffset * inputs[r].total);
    for (int s = 0; s < kStreams; ++s) {
      for (int strip = 0; strip < 2; ++strip) {
        const float* half0 = total[strip][r][2 * s];
        const float* half1 = total[strip][r][2 * s + 1];
        store_strip(z + r * kBlockColumns + (first_stream + s) * kStreamColumns + strip * kStripColumns,
                    _mm512_fmadd_ps(_mm512_load_ps(half0), unit, offset),
                    _mm512_fmadd_ps(_mm512_load_ps(half1), unit, offset));
      }
    }
  }
}

/// A pass of up to kRows rows from row `first`. A single row reads both streams side by side, which memory likes; more
/// rows are bound by arithmetic and take one stream after the other, which leaves them more registers.
template <typename Products, int K, int kRows>
void multiply_some_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t first,
                        std::int64_t rows, float* z) {
  VectorInput inputs[kRows];
  for (int r = 0; r < kRows; ++r) inputs[r] = VectorInput(form, in_features, first + (r < rows ? r : rows - 1));
  z += first * kBlockColumns;
  if constexpr (kRows == 1) {
    multiply_rows_pass<Products, K, kRows, 2>(block, in_features, 0, inputs, rows, z);
  } else {
    multiply_rows_pass<Products, K, kRows, 1>(block, in_features, 0, inputs, rows, z);
    multiply_rows_pass<Products, K, kRows, 1>(block, in_features, 1, inputs, rows, z);
  }
}

template <typename Products, int K>
void multiply_one_row(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t, float* z,
                      std::byte*) {
  multiply_some_rows<Products, K, 1>(block, in_features, form, 0, 1, z);
}

template <typename Products, int K>
void multiply_few_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows,
                       float* z, std::byte*) {
  for (std::int64_t first = 0; first < rows;) {
    const std::int64_t left = rows - first;
    const auto pass = [&](auto kernel, std::int64_t most) {
      const std::int64_t count = left < most ? left : most;
      kernel(block, in_features, form, first, count, z);
      first += count;
    };
    if (left > 4) {
      pass(multiply_some_rows<Products, K, 8>, 8);
    } else if (left > 2) {
      pass(multiply_some_rows<Products, K, 4>, 4);
    } else if (left == 2) {
      pass(multiply_some_rows<Products, K, 2>, 2);
    } else {
      pass(multiply_some_rows<Products, K, 1>, 1);
    }
  }
}

}  // namespace
}  // namespace pergola
