#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/float_kernels.h"
#include "backend/cpu/packed_linear.h"
#include "backend/operations.h"

namespace pergola::cpu {

/// The three linears of an expert as kernels read them.
struct PackedExpert {
  PackedLinear gate;
  PackedLinear up;
  PackedLinear down;
  bool same_suh = false;  ///< gate and up have equal input vectors: one transform serves both

  std::int64_t width() const { return gate.out_features; }
};

PackedExpert pack_expert(const MoeView::Expert& view, WeightArena& arena, ThreadPool& pool);

/// The shape that pack_expert would give, without data.
PackedExpert expert_shape(const MoeView::Expert& view);

/// Bytes of the input rows of a linear in the form that its kernel reads, a multiple of 64: activation forms of a
/// trellis, packed floats for a dense weight.
std::int64_t input_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t rows);

/// Most bytes that input_bytes gives for 1..max_rows rows.
std::int64_t max_input_bytes(const KernelTable& table, const PackedLinear& linear, std::int64_t max_rows);

/// One expert at work on some rows: where its rows come from, and its work space. Each function is one piece of the
/// work; pieces of one stage may run on different threads, stages follow each other:
///   prepare_inputs (each row), multiply_inputs (each block of gate and up), activate (each row), multiply_down (each
///   block).
struct ExpertRun {
  const PackedExpert* expert = nullptr;
  std::int64_t rows = 0;
  const std::int32_t* row_of = nullptr;  ///< row of x for each of `rows`; null: row i is row i
  float* out = nullptr;                  ///< [rows, hidden]

  std::byte* gate_input = nullptr;
  std::byte* up_input = nullptr;  ///< equals gate_input where one form serves both
  std::byte* down_input = nullptr;
  float* gate = nullptr;  ///< [rows, width]
  float* up = nullptr;    ///< [rows, width]

  std::int64_t input_blocks() const { return expert->gate.blocks() + expert->up.blocks(); }
  std::int64_t down_blocks() const { return expert->down.blocks(); }

  void prepare_inputs(const KernelTable& table, const float* x, std::int64_t x_stride, std::int64_t row) const;
  /// Blocks of gate, then blocks of up.
  void multiply_inputs(const KernelTable& table, std::int64_t block, std::byte* scratch) const;
  void activate(const KernelTable& table, const FloatKernels& floats, Activation activation, std::int64_t row) const;
  void multiply_down(const KernelTable& table, std::int64_t block, std::byte* scratch) const;
};

/// Whether gate and up read the same prepared input at this row count.
bool shares_input(const KernelTable& table, const PackedExpert& expert, std::int64_t rows);

}  // namespace pergola::cpu
