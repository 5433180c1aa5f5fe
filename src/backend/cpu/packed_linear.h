#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/weight_arena.h"
#include "base/thread_pool.h"
#include "trellis/linear_view.h"

namespace pergola {

/// A trellis as kernels read it: its bytes in a WeightArena.
struct PackedTrellis {
  PackedMatrix matrix;
  const Half* suh = nullptr;  ///< [matrix.in_features]
  const Half* svh = nullptr;  ///< [matrix.out_features]
};

/// A dense weight as stored, in a WeightArena: row-major [out_features, in_features].
struct PackedDense {
  DType dtype = DType::f32;
  const std::byte* data = nullptr;
};

/// Output columns of one piece of work on a dense weight.
inline constexpr std::int64_t kDenseBlockColumns = 32;

/// One linear bound to the CPU. Widths are the logical ones. The work is cut into blocks of output columns, the last of
/// which may be narrower.
struct PackedLinear {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::variant<PackedDense, PackedTrellis> weight;
  const float* bias = nullptr;  ///< [out_features] or null

  const PackedTrellis* trellis() const { return std::get_if<PackedTrellis>(&weight); }
  const PackedDense* dense() const { return std::get_if<PackedDense>(&weight); }
  std::int64_t block_columns() const { return trellis() != nullptr ? kBlockColumns : kDenseBlockColumns; }
  std::int64_t blocks() const { return (out_features + block_columns() - 1) / block_columns(); }
};

/// Copies (dense) or repacks (trellis) a linear into the arena, with all members of the pool. The view is not needed
/// afterwards.
PackedLinear pack_linear(const LinearView& view, WeightArena& arena, ThreadPool& pool);

/// The shape that pack_linear would give, without data: for sizes.
PackedLinear packed_shape(const LinearView& view);

/// Arena bytes that pack_linear takes for such a view, which needs no data.
std::int64_t packed_linear_bytes(const LinearView& view);

/// Bytes of the activation form of `rows` rows for this linear, a multiple of 64; 0 for a dense weight.
std::int64_t form_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t rows);

/// Most bytes that form_bytes gives for 1..max_rows rows.
std::int64_t max_form_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows);

/// Writes one input row (in_features floats) to the form. Nothing to do for a dense weight.
void prepare_row(const KernelTable& table, const PackedLinear& linear, const float* x, std::int64_t row,
                 std::int64_t rows, std::byte* form);

/// Bytes of scratch that one thread needs for multiply_block with up to max_rows rows, a multiple of 64.
std::int64_t block_scratch_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows);

/// Input rows of a product: x for dense weights, the prepared form for a trellis.
struct LinearInput {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const std::byte* form = nullptr;
  std::int64_t rows = 0;
};

/// out[r * out_stride + j] = (x W^T + bias)[r][block * block_columns + j] for the logical columns of a block: `out`
/// points at the block's first column of row 0. `out` must not overlap x.
void multiply_block(const KernelTable& table, const PackedLinear& linear, std::int64_t block, const LinearInput& input,
                    float* out, std::int64_t out_stride, std::byte* scratch);

}  // namespace pergola
