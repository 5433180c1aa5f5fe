#pragma once

#include "backend/cpu/avx2_kernels.h"
#include "backend/cpu/trellis_avx2.h"
#include "backend/cpu/trellis_values_avx2.h"

// Kernels in integers: mul1 for one row, and every codebook for several rows. Weights are int16, sums int32 within a
// chunk of 128 inputs, fp32 across chunks. `MultiplyAdd::apply(sums, a, b)` adds products of neighbouring int16 to
// int32 sums: two instructions in AVX2, one with VNNI. Each including file gets its own copy.

namespace pergola::avx2 {
namespace {

constexpr std::int64_t kZStride = 128;

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

PERGOLA_INLINE void fold(__m256i sums, float scale, float* z) {
  _mm256_storeu_ps(z, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(scale), _mm256_loadu_ps(z)));
}

/// One chunk of one strip times one row, both tiles side by side: z[0..32) += scale * sums.
template <typename MultiplyAdd, int K>
PERGOLA_INLINE void multiply_chunk(const std::byte* piece, const std::int32_t* pairs, std::int32_t start, float scale,
                                   float* z) {
  __m256i sums[2][2];
  for (auto& tile : sums) tile[0] = tile[1] = _mm256_set1_epi32(start);
  for (int band = 0; band < kBandsPerChunk; ++band, piece += piece_bytes(K), pairs += 8) {
    prefetch_piece<K>(piece);
    for (int tile = 0; tile < 2; ++tile) {
      for_states<K>(
          piece + 32 * tile, [&](auto step, __m256i states) __attribute__((always_inline)) {
            constexpr int t = decltype(step)::value;
            __m256i& sum = sums[tile][step_half(t)];
            sum = MultiplyAdd::apply(sum, mul1_sums(states), _mm256_set1_epi32(pairs[step_pair(t)]));
          });
    }
  }
  for (int tile = 0; tile < 2; ++tile) {
    for (int half = 0; half < 2; ++half) fold(sums[tile][half], scale, z + 16 * tile + 8 * half);
  }
}

template <typename MultiplyAdd, int K>
void multiply_mul1_one(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t, float* z,
                       std::byte*) {
  const IntRow row = int_row(form, in_features, 0);
  for (int i = 0; i < kBlockColumns; i += 8) _mm256_storeu_ps(z + i, _mm256_set1_ps(row.offset));
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      multiply_chunk<MultiplyAdd, K>(block + piece_offset(in_features, K, strip, chunk * kBandsPerChunk),
                                     row.pairs + 64 * chunk, row.starts[chunk], row.scales[chunk],
                                     z + kStripColumns * strip);
    }
  }
}

// --- several rows ---

/// A chunk of one strip as int16: for each of its 64 row pairs four registers of eight columns (columns
/// 0..7, 8..15, 16..23, 24..31).
constexpr std::int64_t kDecodedBytes = 64 * 4 * 32;

std::int64_t decoded_scratch(std::int64_t, std::int64_t) {
  return kDecodedBytes;
}

template <Codebook codebook, int K>
PERGOLA_INLINE void decode_chunk(const std::byte* piece, std::byte* decoded) {
  for (int band = 0; band < kBandsPerChunk; ++band, piece += piece_bytes(K), decoded += 8 * 128) {
    prefetch_piece<K>(piece);
    for (int tile = 0; tile < 2; ++tile) {
      for_states<K>(
          piece + 32 * tile, [&](auto step, __m256i states) __attribute__((always_inline)) {
            constexpr int t = decltype(step)::value;
            _mm256_store_si256(reinterpret_cast<__m256i*>(decoded + 128 * step_pair(t) + 64 * tile + 32 * step_half(t)),
                               int_values<codebook>(states));
          });
    }
  }
}

/// `kRows` rows times 16 columns of a decoded chunk. `pairs` are the first row's, rows lie `stride` bytes apart.
template <typename MultiplyAdd, int kRows>
void multiply_decoded(const std::byte* decoded, const std::byte* form, std::int64_t stride, std::int64_t chunks,
                      std::int64_t chunk, float* z) {
  __m256i sums[kRows][2];
  const std::byte* pairs = form + 256 * chunk;
  const std::byte* scales = form + 256 * chunks + 4 * chunk;
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = sums[r][1] =
        _mm256_set1_epi32(*reinterpret_cast<const std::int32_t*>(scales + 4 * chunks + r * stride));
  }
#pragma GCC unroll 4
  for (int pair = 0; pair < 64; ++pair) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(decoded + 128 * pair));
    const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(decoded + 128 * pair + 32));
    for (int r = 0; r < kRows; ++r) {
      const __m256i x = _mm256_set1_epi32(*reinterpret_cast<const std::int32_t*>(pairs + 4 * pair + r * stride));
      sums[r][0] = MultiplyAdd::apply(sums[r][0], w0, x);
      sums[r][1] = MultiplyAdd::apply(sums[r][1], w1, x);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float scale = *reinterpret_cast<const float*>(scales + r * stride);
    fold(sums[r][0], scale, z + r * kZStride);
    fold(sums[r][1], scale, z + r * kZStride + 8);
  }
}

template <typename MultiplyAdd>
void multiply_decoded_rows(const std::byte* decoded, const std::byte* form, std::int64_t in_features,
                           std::int64_t chunk, std::int64_t rows, float* z) {
  const std::int64_t stride = int_row_bytes(in_features);
  const std::int64_t chunks = in_features / kChunkRows;
  constexpr int kGroup = 4;  // eight sums leave registers for the compiler to work with; six rows were no faster
  for (std::int64_t row = 0; row < rows; row += kGroup) {
    const std::byte* at = form + row * stride;
    for (int half = 0; half < 2; ++half) {
      const std::byte* w = decoded + 64 * half;
      float* out = z + row * kZStride + 16 * half;
      switch (rows - row) {
        case 1:
          multiply_decoded<MultiplyAdd, 1>(w, at, stride, chunks, chunk, out);
          break;
        case 2:
          multiply_decoded<MultiplyAdd, 2>(w, at, stride, chunks, chunk, out);
          break;
        case 3:
          multiply_decoded<MultiplyAdd, 3>(w, at, stride, chunks, chunk, out);
          break;
        default:
          multiply_decoded<MultiplyAdd, kGroup>(w, at, stride, chunks, chunk, out);
          break;
      }
    }
  }
}

/// Decodes each chunk of a strip once, into L1, and applies it to every row.
template <typename MultiplyAdd, Codebook codebook, int K>
void multiply_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows, float* z,
                   std::byte* scratch) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const __m256 offset = _mm256_set1_ps(int_row(form, in_features, r).offset);
    for (int i = 0; i < kBlockColumns; i += 8) _mm256_storeu_ps(z + r * kZStride + i, offset);
  }
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      decode_chunk<codebook, K>(block + piece_offset(in_features, K, strip, chunk * kBandsPerChunk), scratch);
      multiply_decoded_rows<MultiplyAdd>(scratch, form, in_features, chunk, rows, z + kStripColumns * strip);
    }
  }
}

// --- table ---

template <typename MultiplyAdd, Codebook codebook, int K>
void add_rows(KernelTable& table, const ActivationForm* form) {
  const TrellisKernel kernel{MultiplyAdd::kRowsPath, form, 1e-3, decoded_scratch,
                             multiply_rows<MultiplyAdd, codebook, K>};
  table.entry(codebook, K, Regime::few) = kernel;
  table.entry(codebook, K, Regime::many) = kernel;
}

template <typename MultiplyAdd, int... K>
void add_int_entries(KernelTable& table, std::integer_sequence<int, K...>) {
  ((table.entry(Codebook::mul1, K + 1, Regime::one) = {MultiplyAdd::kOnePath, &kMul1Int16Form, 1e-3, no_scratch,
                                                       multiply_mul1_one<MultiplyAdd, K + 1>}),
   ...);
  (add_rows<MultiplyAdd, Codebook::mul1, K + 1>(table, &kMul1Int16Form), ...);
  (add_rows<MultiplyAdd, Codebook::mcg, K + 1>(table, &kInt13Form), ...);
  (add_rows<MultiplyAdd, Codebook::three_inst, K + 1>(table, &kInt13Form), ...);
}

}  // namespace
}  // namespace pergola::avx2
