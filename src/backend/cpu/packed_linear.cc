#include "backend/cpu/packed_linear.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "trellis/decode.h"

namespace pergola {
namespace {

constexpr std::int64_t kAlignment = 64;

constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

const std::byte* copy_bytes(std::span<const std::byte> bytes, WeightArena& arena) {
  std::byte* copy = arena.allocate(static_cast<std::int64_t>(bytes.size()));
  std::memcpy(copy, bytes.data(), bytes.size());
  return copy;
}

const Half* copy_halves(std::span<const std::byte> bytes, WeightArena& arena) {
  return reinterpret_cast<const Half*>(copy_bytes(bytes, arena));
}

PackedTrellis trellis_shape(const TrellisView& view) {
  return {{view.in_features, view.out_features, view.bits, view.codebook, nullptr}, nullptr, nullptr};
}

PackedTrellis pack_trellis(const TrellisView& view, WeightArena& arena, ThreadPool& pool) {
  PackedTrellis packed = trellis_shape(view);
  std::byte* data = arena.allocate(packed.matrix.bytes());
  packed.matrix.data = data;
  const std::int64_t bytes = block_bytes(view.in_features, view.bits);
  pool.parallel_for(packed.matrix.blocks(),
                    [&](std::int64_t block, int) { pack_block(view, block, data + block * bytes); });
  packed.suh = copy_halves(view.suh, arena);
  packed.svh = copy_halves(view.svh, arena);
  return packed;
}

const float* copy_bias(const DenseView& bias, WeightArena& arena) {
  auto* values = reinterpret_cast<float*>(arena.allocate(bias.columns * static_cast<std::int64_t>(sizeof(float))));
  for (std::int64_t j = 0; j < bias.columns; ++j) values[j] = dense_element(bias, j);
  return values;
}

const TrellisKernel& kernel_of(const KernelTable& table, const PackedTrellis& trellis, std::int64_t rows) {
  return table.kernel_for_rows(trellis.matrix.codebook, trellis.matrix.bits, rows);
}

/// Calls use(rows) for the largest row count of every regime that occurs in 1..max_rows: sizes grow with rows within a
/// regime.
template <typename Use>
void for_each_regime(const KernelTable& table, Codebook codebook, std::int64_t max_rows, Use&& use) {
  const RowLimits& limits = table.limits[static_cast<int>(codebook)];
  for (const std::int64_t rows : {limits.few - 1, limits.many - 1, max_rows}) {
    if (rows >= 1) use(std::min(rows, max_rows));
  }
}

void multiply_dense_block(const KernelTable& table, const PackedLinear& linear, std::int64_t block,
                          const LinearInput& input, float* out, std::int64_t out_stride) {
  const PackedDense& dense = *linear.dense();
  const std::int64_t first = block * kDenseBlockColumns;
  const std::int64_t count = std::min(kDenseBlockColumns, linear.out_features - first);
  const std::byte* w = dense.data + first * linear.in_features * static_cast<std::int64_t>(size_of(dense.dtype));
  table.dense(dense.dtype)(w, linear.in_features, count, input.x, input.x_stride, input.rows, out, out_stride);
  if (linear.bias == nullptr) return;
  for (std::int64_t r = 0; r < input.rows; ++r) {
    for (std::int64_t j = 0; j < count; ++j) out[r * out_stride + j] += linear.bias[first + j];
  }
}

}  // namespace

PackedLinear packed_shape(const LinearView& view) {
  PackedLinear shape{view.in_features, view.out_features, {}, nullptr};
  if (const TrellisView* trellis = view.trellis()) {
    shape.weight = trellis_shape(*trellis);
  } else {
    shape.weight = PackedDense{view.dense()->dtype, nullptr};
  }
  return shape;
}

PackedLinear pack_linear(const LinearView& view, WeightArena& arena, ThreadPool& pool) {
  PackedLinear packed{view.in_features, view.out_features, {}, nullptr};
  if (const TrellisView* trellis = view.trellis()) {
    packed.weight = pack_trellis(*trellis, arena, pool);
  } else {
    packed.weight = PackedDense{view.dense()->dtype, copy_bytes(view.dense()->bytes, arena)};
  }
  if (view.bias) packed.bias = copy_bias(*view.bias, arena);
  return packed;
}

std::int64_t packed_linear_bytes(const LinearView& view) {
  std::int64_t bytes = view.bias ? aligned(view.out_features * static_cast<std::int64_t>(sizeof(float))) : 0;
  if (const TrellisView* trellis = view.trellis()) {
    bytes += trellis->out_features / kBlockColumns * block_bytes(trellis->in_features, trellis->bits);
    return bytes + aligned(2 * trellis->in_features) + aligned(2 * trellis->out_features);
  }
  const DenseView& dense = *view.dense();
  return bytes + aligned(dense.rows * dense.columns * static_cast<std::int64_t>(size_of(dense.dtype)));
}

std::int64_t form_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t rows) {
  const PackedTrellis* trellis = linear.trellis();
  return trellis == nullptr ? 0
                            : aligned(kernel_of(table, *trellis, rows).form->bytes(trellis->matrix.in_features, rows));
}

std::int64_t max_form_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows) {
  std::int64_t bytes = 0;
  if (const PackedTrellis* trellis = linear.trellis()) {
    for_each_regime(table, trellis->matrix.codebook, max_rows,
                    [&](std::int64_t rows) { bytes = std::max(bytes, form_bytes(table, linear, rows)); });
  }
  return bytes;
}

void prepare_row(const KernelTable& table, const PackedLinear& linear, const float* x, std::int64_t row,
                 std::int64_t rows, std::byte* form) {
  const PackedTrellis* trellis = linear.trellis();
  if (trellis == nullptr) return;
  kernel_of(table, *trellis, rows)
      .form->prepare(x, linear.in_features, trellis->suh, trellis->matrix.in_features, row, rows, form);
}

std::int64_t block_scratch_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows) {
  const PackedTrellis* trellis = linear.trellis();
  if (trellis == nullptr) return 0;
  std::int64_t bytes = 0;
  for_each_regime(table, trellis->matrix.codebook, max_rows, [&](std::int64_t rows) {
    bytes = std::max(bytes, kernel_of(table, *trellis, rows).scratch_bytes(trellis->matrix.in_features, rows));
  });
  return aligned(bytes) + aligned(max_rows * kBlockColumns * static_cast<std::int64_t>(sizeof(float)));
}

void multiply_block(const KernelTable& table, const PackedLinear& linear, std::int64_t block, const LinearInput& input,
                    float* out, std::int64_t out_stride, std::byte* scratch) {
  assert(block >= 0 && block < linear.blocks());
  const PackedTrellis* trellis = linear.trellis();
  if (trellis == nullptr) return multiply_dense_block(table, linear, block, input, out, out_stride);
  const PackedMatrix& matrix = trellis->matrix;
  auto* z = reinterpret_cast<float*>(scratch);
  std::byte* rest = scratch + aligned(input.rows * kBlockColumns * static_cast<std::int64_t>(sizeof(float)));
  kernel_of(table, *trellis, input.rows)
      .multiply(matrix.block(block), matrix.in_features, input.form, input.rows, z, rest);
  const std::int64_t first = block * kBlockColumns;
  const std::int64_t count = std::min(kBlockColumns, linear.out_features - first);
  const float* bias = linear.bias == nullptr ? nullptr : linear.bias + first;
  for (std::int64_t r = 0; r < input.rows; ++r) {
    table.finish(z + r * kBlockColumns, trellis->svh + first, bias, count, out + r * out_stride);
  }
}

}  // namespace pergola
