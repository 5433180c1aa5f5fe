// AVX2 kernels for one row of mcg and 3inst: values as floats, exact but for the rounding to binary16 that is left out,
// fp32 sums.

#include "backend/cpu/avx2_kernels.h"
#include "backend/cpu/trellis_avx2.h"
#include "backend/cpu/trellis_values_avx2.h"

namespace pergola::avx2 {
namespace {

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

/// One chunk of one strip times one row, z[0..32) += sums. Values carry a factor 2^-112 and inputs 2^96.
template <Codebook codebook, int K>
PERGOLA_INLINE void multiply_chunk(const std::byte* piece, const float* pairs, float* z) {
  __m256 sums[2][2];
  for (auto& tile : sums) tile[0] = tile[1] = _mm256_setzero_ps();
  for (int band = 0; band < kBandsPerChunk; ++band, piece += piece_bytes(K), pairs += 16) {
    prefetch_piece<K>(piece);
    for (int tile = 0; tile < 2; ++tile) {
      for_states<K>(
          piece + 32 * tile, [&](auto step, __m256i states) __attribute__((always_inline)) {
            constexpr int t = decltype(step)::value;
            __m256 upper, lower;
            float_values<codebook>(states, upper, lower);
            __m256& sum = sums[tile][step_half(t)];
            sum = _mm256_fmadd_ps(upper, _mm256_set1_ps(pairs[2 * step_pair(t)]), sum);
            sum = _mm256_fmadd_ps(lower, _mm256_set1_ps(pairs[2 * step_pair(t) + 1]), sum);
          });
    }
  }
  for (int tile = 0; tile < 2; ++tile) {
    for (int half = 0; half < 2; ++half) {
      float* at = z + 16 * tile + 8 * half;
      _mm256_storeu_ps(at, _mm256_fmadd_ps(sums[tile][half], _mm256_set1_ps(0x1p16f), _mm256_loadu_ps(at)));
    }
  }
}

template <Codebook codebook, int K>
void multiply_one(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t, float* z,
                  std::byte*) {
  const auto* x = reinterpret_cast<const float*>(form);
  for (int i = 0; i < kBlockColumns; i += 8) _mm256_storeu_ps(z + i, _mm256_setzero_ps());
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      multiply_chunk<codebook, K>(block + piece_offset(in_features, K, strip, chunk * kBandsPerChunk), x + 128 * chunk,
                                  z + kStripColumns * strip);
    }
  }
}

template <Codebook codebook, int... K>
void add_codebook(KernelTable& table, std::integer_sequence<int, K...>) {
  ((table.entry(codebook, K + 1, Regime::one) = {"avx2 fp32", &kPairFloatForm, 1e-3, no_scratch,
                                                 multiply_one<codebook, K + 1>}),
   ...);
}

}  // namespace

void add_float_kernels(KernelTable& table) {
  constexpr std::make_integer_sequence<int, kBitWidths> kAll;
  add_codebook<Codebook::mcg>(table, kAll);
  add_codebook<Codebook::three_inst>(table, kAll);
}

}  // namespace pergola::avx2
