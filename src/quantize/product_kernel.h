#pragma once

#include <cstdint>

namespace pergola {

/// C += A^T B with A [depth, rows], B [depth, columns], C [rows, columns], all row-major with a stride in elements;
/// sums in fp32 in the order of depth.
using ProductKernel = void (*)(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                               std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth);

/// The widest kernel of this processor.
ProductKernel product_kernel();

void product_scalar(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                    std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth);
void product_avx2(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                  std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth);
void product_avx512(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                    std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth);

}  // namespace pergola
