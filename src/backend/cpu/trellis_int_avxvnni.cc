// Integer kernels for processors that have VNNI on 256-bit registers (AVX-VNNI).

#include "backend/cpu/trellis_int_avx2.h"

namespace pergola::avx2 {
namespace {

struct DotProduct {
  static constexpr const char* kOnePath = "avx2 vnni int16";
  static constexpr const char* kRowsPath = "avx2 vnni int rows";
  PERGOLA_INLINE __m256i apply(__m256i sums, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(sums, a, b); }
};

}  // namespace

void add_int_kernels_vnni(KernelTable& table) {
  add_int_entries<DotProduct>(table, std::make_integer_sequence<int, kBitWidths>{});
}

}  // namespace pergola::avx2
