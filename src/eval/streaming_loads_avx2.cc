#include <immintrin.h>

#include "eval/streaming_loads.h"

namespace pergola {

std::uint64_t load_all_avx2(const std::byte* from, std::size_t bytes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (const std::byte* end = from + bytes; from != end; from += 256) {
    for (int i = 0; i < 8; ++i)
      sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * i)));
  }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  alignas(32) std::uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sums[0]);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

}  // namespace pergola
