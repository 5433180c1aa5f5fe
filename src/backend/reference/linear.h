#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "trellis/linear_view.h"

namespace pergola::reference {

/// y = W x + bias for `rows` rows. x [rows, in_features] and y [rows, out_features] with strides in elements.
///
/// Dense: y_j = sum_i x_i W_ji. Trellis: xh = Hn(x * suh) per 128 inputs, z_j = sum_i xh_i What_ij, y = Hn(z) * svh per
/// 128 outputs, where Hn is the orthonormal 128-point Hadamard transform; padded inputs are zero, padded outputs are
/// dropped. Sums in double; xh and y are stored as float. With a pool, blocks of outputs are spread over it; without
/// one, everything runs on the calling thread.
void apply_linear(const LinearView& linear, const float* x, std::int64_t x_stride, std::int64_t rows, float* y,
                  std::int64_t y_stride, ThreadPool* pool = nullptr);

}  // namespace pergola::reference
