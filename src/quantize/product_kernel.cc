#include "quantize/product_kernel.h"
#include "base/cpu_features.h"
#include "quantize/product_loops.h"

namespace pergola {

void product_scalar(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                    std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  product_loops<4, 8>(a, a_stride, b, b_stride, c, c_stride, rows, columns, depth);
}

ProductKernel product_kernel() {
#if defined(__x86_64__)
  if (cpu_features().best >= Isa::avx512) return product_avx512;
  if (cpu_features().best >= Isa::avx2) return product_avx2;
#endif
  return product_scalar;
}

}  // namespace pergola
