#include "quantize/product_kernel.h"
#include "quantize/product_loops.h"

namespace pergola {

void product_avx512(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                    std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  product_loops<8, 32>(a, a_stride, b, b_stride, c, c_stride, rows, columns, depth);
}

}  // namespace pergola
