// Integer kernels in plain AVX2.

#include "backend/cpu/trellis_int_avx2.h"

namespace pergola::avx2 {
namespace {

struct MultiplyThenAdd {
  static constexpr const char* kOnePath = "avx2 int16";
  static constexpr const char* kRowsPath = "avx2 int rows";
  PERGOLA_INLINE __m256i apply(__m256i sums, __m256i a, __m256i b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
  }
};

}  // namespace

void add_int_kernels(KernelTable& table) {
  add_int_entries<MultiplyThenAdd>(table, std::make_integer_sequence<int, kBitWidths>{});
}

}  // namespace pergola::avx2
