#pragma once

#include "backend/cuda/elementwise.h"

namespace pergola::cuda {

/// The pieces of a many-row linear: x transformed once, weights decoded a slice of columns at a time, an ordinary GEMM,
/// outputs transformed.

/// out [rows, k] binary16 = transform(x * suh); columns beyond x.columns count as zero.
void launch_transform_rows(const LaunchContext& context, const MatrixView& x, const __half* suh, __half* out,
                           std::int64_t k);

/// Exact binary16 weights of column groups [first, first + groups): out [128 * groups, in_features], row-major.
void launch_reconstruct(const LaunchContext& context, const std::byte* packed, TrellisKind kind,
                        std::int64_t in_features, std::int64_t first, std::int64_t groups, __half* out);

/// y[:, first .. ] = transform(z) * svh + bias for z fp32 [rows, width], of which only the logical columns are written.
/// svh and bias are the whole vectors.
void launch_transform_outputs(const LaunchContext& context, const float* z, std::int64_t width,
                              std::int64_t first_column, const __half* svh, const __half* bias, const MatrixView& out);

}  // namespace pergola::cuda
