#include "backend/cuda/regime.h"

#include <algorithm>

#include "backend/cuda/wide_gemm.h"

namespace pergola::cuda {

Regime few_rows_regime(Codebook codebook, int bits, std::int64_t rows, int shared_bytes) {
  const bool bytes = family_of(codebook) == Family::byte_sum;
  Regime regime;
  if (rows <= 4 && bytes) {
    regime = {false, Operand::bytes, 1, 4};
  } else if (rows <= 8) {
    regime = {false, bytes ? Operand::packed : Operand::pairs, 1, 8};
  } else if (rows <= 16 || !packed_gemm_fits(shared_bytes, {codebook, bits}, Operand::packed, 4)) {
    regime = {false, Operand::packed, 2, 16};
  } else {
    regime = {false, Operand::packed, 4, 32};
  }
  return regime;
}

Regime linear_regime(Codebook codebook, int bits, std::int64_t rows, int shared_bytes, const RegimeTable& table) {
  if (rows >= table.decode_first_rows) return {true};
  const Regime regime = few_rows_regime(codebook, bits, rows, shared_bytes);
  // Devices with little shared memory: slow, but right.
  if (!packed_gemm_fits(shared_bytes, {codebook, bits}, regime.operand, regime.blocks)) return {true};
  return regime;
}

bool experts_fit(Codebook codebook, int bits, std::int64_t most_rows, int shared_bytes) {
  for (std::int64_t rows = 1; rows <= most_rows; ++rows) {
    const Regime regime = few_rows_regime(codebook, bits, rows, shared_bytes);
    if (!packed_gemm_fits(shared_bytes, {codebook, bits}, regime.operand, regime.blocks)) return false;
  }
  return true;
}

int expert_chunk(std::int64_t rows, std::int64_t top_k, std::int64_t experts, int most) {
  const std::int64_t picks = rows * top_k;
  int chunk = 32;
  if (rows <= 4) {
    chunk = 4;
  } else if (rows <= 8 || picks <= 3 * experts) {
    chunk = 8;
  } else if (most >= kWideRows) {
    chunk = kWideRows;
  } else if (picks <= 12 * experts) {
    chunk = 16;
  }
  return std::min(chunk, most);
}

}  // namespace pergola::cuda
