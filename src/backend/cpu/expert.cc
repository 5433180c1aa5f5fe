#include "backend/cpu/expert.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/elementwise.h"

namespace pergola::cpu {
namespace {

bool equal_suh(const PackedLinear& a, const PackedLinear& b) {
  const PackedTrellis* x = a.trellis();
  const PackedTrellis* y = b.trellis();
  return x != nullptr && y != nullptr && x->matrix.in_features == y->matrix.in_features &&
         std::memcmp(x->suh, y->suh, static_cast<std::size_t>(x->matrix.in_features) * sizeof(Half)) == 0;
}

const ActivationForm* form_of(const KernelTable& table, const PackedLinear& linear, std::int64_t rows) {
  const PackedTrellis* trellis = linear.trellis();
  return trellis == nullptr ? nullptr
                            : table.kernel_for_rows(trellis->matrix.codebook, trellis->matrix.bits, rows).form;
}

std::int64_t dense_input_bytes(const PackedLinear& linear, std::int64_t rows) {
  return (rows * linear.in_features * static_cast<std::int64_t>(sizeof(float)) + 63) / 64 * 64;
}

void prepare(const KernelTable& table, const PackedLinear& linear, const float* x, std::int64_t row, std::int64_t rows,
             std::byte* input) {
  if (linear.trellis() != nullptr) {
    prepare_row(table, linear, x, row, rows, input);
  } else {
    std::copy_n(x, linear.in_features, reinterpret_cast<float*>(input) + row * linear.in_features);
  }
}

LinearInput linear_input(const PackedLinear& linear, const std::byte* input, std::int64_t rows) {
  if (linear.trellis() != nullptr) return {.form = input, .rows = rows};
  return {.x = reinterpret_cast<const float*>(input), .x_stride = linear.in_features, .rows = rows};
}

}  // namespace

PackedExpert pack_expert(const MoeView::Expert& view, WeightArena& arena, ThreadPool& pool) {
  PackedExpert expert{pack_linear(view.gate, arena, pool), pack_linear(view.up, arena, pool),
                      pack_linear(view.down, arena, pool)};
  expert.same_suh = equal_suh(expert.gate, expert.up);
  return expert;
}

PackedExpert expert_shape(const MoeView::Expert& view) {
  return {packed_shape(view.gate), packed_shape(view.up), packed_shape(view.down)};
}

std::int64_t input_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t rows) {
  return linear.trellis() != nullptr ? form_bytes(table, linear, rows) : dense_input_bytes(linear, rows);
}

std::int64_t max_input_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows) {
  return linear.trellis() != nullptr ? max_form_bytes(table, linear, max_rows) : dense_input_bytes(linear, max_rows);
}

bool shares_input(const KernelTable& table, const PackedExpert& expert, std::int64_t rows) {
  if (expert.gate.dense() != nullptr && expert.up.dense() != nullptr) return true;
  return expert.same_suh && form_of(table, expert.gate, rows) == form_of(table, expert.up, rows);
}

void ExpertRun::prepare_inputs(const KernelTable& table, const float* x, std::int64_t x_stride,
                               std::int64_t row) const {
  const float* from = x + (row_of == nullptr ? row : row_of[row]) * x_stride;
  prepare(table, expert->gate, from, row, rows, gate_input);
  if (up_input != gate_input) prepare(table, expert->up, from, row, rows, up_input);
}

void ExpertRun::multiply_inputs(const KernelTable& table, std::int64_t block, std::byte* scratch) const {
  const bool is_gate = block < expert->gate.blocks();
  const PackedLinear& linear = is_gate ? expert->gate : expert->up;
  const std::int64_t own = is_gate ? block : block - expert->gate.blocks();
  multiply_block(table, linear, own, linear_input(linear, is_gate ? gate_input : up_input, rows),
                 (is_gate ? gate : up) + own * linear.block_columns(), expert->width(), scratch);
}

void ExpertRun::activate(const KernelTable& table, const FloatKernels& floats, Activation activation,
                         std::int64_t row) const {
  float* values = gate + row * expert->width();
  cpu::activate(floats, activation, values, up + row * expert->width(), values, expert->width());
  if (expert->down.trellis() != nullptr) prepare(table, expert->down, values, row, rows, down_input);
}

void ExpertRun::multiply_down(const KernelTable& table, std::int64_t block, std::byte* scratch) const {
  const PackedLinear& linear = expert->down;
  const std::byte* input = linear.trellis() != nullptr ? down_input : reinterpret_cast<const std::byte*>(gate);
  multiply_block(table, linear, block, linear_input(linear, input, rows), out + block * linear.block_columns(),
                 linear.out_features, scratch);
}

}  // namespace pergola::cpu
