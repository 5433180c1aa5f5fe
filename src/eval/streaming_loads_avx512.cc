#include <immintrin.h>

#include "eval/streaming_loads.h"

namespace pergola {

std::uint64_t load_all_avx512(const std::byte* from, std::size_t bytes) {
  __m512i sums[4];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (const std::byte* end = from + bytes; from != end; from += 256) {
    for (int i = 0; i < 4; ++i) sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(from + 64 * i));
  }
  sums[0] = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, sums[0]);
  std::uint64_t all = 0;
  for (const std::uint64_t word : words) all ^= word;
  return all;
}

}  // namespace pergola
