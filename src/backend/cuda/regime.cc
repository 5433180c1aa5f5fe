#include "backend/cuda/regime.h"

#include <algorithm>

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
  return few_rows_regime(codebook, bits, rows, shared_bytes);
}

int expert_chunk(std::int64_t rows, std::int64_t top_k, std::int64_t experts) {
  if (rows <= 4) return 4;
  const std::int64_t picks = rows * top_k;
  if (rows <= 8 || picks <= 3 * experts) return 8;
  return picks <= 12 * experts ? 16 : 32;
}

}  // namespace pergola::cuda
