#pragma once

// The loops of ProductKernel, for the compiler to vectorise. Included by one file an instruction set, so everything
// here is local to that file.

#include <cstdint>

namespace {

/// A full block of Rows x Columns sums kept in registers.
template <int Rows, int Columns>
inline void product_block(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                          std::int64_t c_stride, std::int64_t depth) {
  float sum[Rows][Columns] = {};
  for (std::int64_t d = 0; d < depth; ++d) {
    const float* a_row = a + d * a_stride;
    const float* b_row = b + d * b_stride;
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) sum[i][j] += a_row[i] * b_row[j];
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Columns; ++j) c[i * c_stride + j] += sum[i][j];
  }
}

template <int Rows, int Columns>
inline void product_loops(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
                          std::int64_t c_stride, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  std::int64_t i = 0;
  for (; i + Rows <= rows; i += Rows) {
    std::int64_t j = 0;
    for (; j + Columns <= columns; j += Columns)
      product_block<Rows, Columns>(a + i, a_stride, b + j, b_stride, c + i * c_stride + j, c_stride, depth);
    for (; j < columns; ++j)
      product_block<Rows, 1>(a + i, a_stride, b + j, b_stride, c + i * c_stride + j, c_stride, depth);
  }
  for (; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j)
      product_block<1, 1>(a + i, a_stride, b + j, b_stride, c + i * c_stride + j, c_stride, depth);
  }
}

}  // namespace
