#pragma once

#include <cstdint>

#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

/// How a trellis product of some rows is computed.
struct Regime {
  bool decode_first = false;  ///< weights to binary16, then an ordinary GEMM
  Operand operand = Operand::packed;
  int blocks = 0;  ///< column blocks of 8
  int chunk = 0;   ///< rows of a task; more rows make several tasks of the same matrix
  bool operator==(const Regime&) const = default;
};

/// Row counts at which one way becomes faster than another.
struct RegimeTable {
  std::int64_t decode_first_rows = 97;  ///< from here on (measured on an H200: docs/performance.md)
};

/// The kernel for tasks of up to `rows` rows; a chunk never holds more than fits the device's shared memory.
Regime few_rows_regime(Codebook codebook, int bits, std::int64_t rows, int shared_bytes);

/// The way to compute one linear of `rows` rows: where no kernel for few rows fits the device, weights are decoded
/// first.
Regime linear_regime(Codebook codebook, int bits, std::int64_t rows, int shared_bytes, const RegimeTable& table);

/// Whether a launch had better prepare its own inputs than have a kernel of its own for that: while a block does it in
/// one go.
constexpr bool fused_inputs_pay(std::int64_t rows, std::int64_t k) {
  return rows <= kMaxFusedRows && rows * k <= 8192;
}

/// Whether there are kernels for tasks of experts of up to `most_rows` rows: they have no other way.
bool experts_fit(Codebook codebook, int bits, std::int64_t most_rows, int shared_bytes);

/// Rows of a task of routed experts, from the rows that an expert gets on average. `most` is the most that a kernel for
/// this layer takes: kWideRows, or what fits in shared memory.
int expert_chunk(std::int64_t rows, std::int64_t top_k, std::int64_t experts, int most);

}  // namespace pergola::cuda
