#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "trellis/linear_view.h"

namespace pergola {

/// The value of every state as float, indexed by state. Built on first use, kept for the life of the process (256 KB a
/// codebook).
std::span<const float, 65536> codebook_table(Codebook codebook);

/// The inner weight of a trellis, exact to the bit: row-major [in_features, out_features] binary16, before signs,
/// scales and transforms.
std::vector<Half> decode_inner(const TrellisView& trellis);

/// The dense weight that a trellis stands for, row-major [out_features, in_features] as DenseView stores weights:
/// W[j][i] = (diag(suh) Hn inner Hn diag(svh))[i][j], Hn the block-diagonal Hadamard transform. Computed in double. For
/// tests and tools.
std::vector<double> effective_weight(const TrellisView& trellis);

/// y = x W for `rows` rows in double, the definition that every kernel is compared with: y = Hn(Hn(x * suh) inner) *
/// svh. x row-major [rows, in_features], y row-major [rows, out_features].
void trellis_product(const TrellisView& trellis, std::int64_t rows, std::span<const double> x, std::span<double> y);

/// y = W x + bias for `rows` rows of any linear (dense or trellis) in its logical widths, sums in double.
/// x row-major [rows, linear.in_features], y row-major [rows, linear.out_features].
void linear_product(const LinearView& linear, std::int64_t rows, std::span<const double> x, std::span<double> y);

/// Element `index` of a dense float tensor (f32, f16 or bf16) of any alignment.
float dense_element(const DenseView& dense, std::int64_t index);

}  // namespace pergola
