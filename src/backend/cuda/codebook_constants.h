#pragma once

#include <cstdint>

#include "trellis/codebook.h"

namespace pergola::cuda {

/// The two kinds of codebook: sums of two masked halves (3inst, mcg; told apart by constants), and sums of four bytes
/// (mul1).
enum class Family : std::uint8_t { half_pair, byte_sum };

constexpr Family family_of(Codebook codebook) {
  return codebook == Codebook::mul1 ? Family::byte_sum : Family::half_pair;
}

/// Constants of a half_pair codebook. Kernels take them as a parameter on purpose: a logic operation with two
/// immediates would become two instructions.
struct CodebookConstants {
  std::uint32_t multiplier = 0;
  std::uint32_t addend = 0;
  std::uint32_t repair_addend = 0;  ///< addend + (addend << 16): see repair() in trellis_decode.cuh
  std::uint32_t flip = 0x3B603B60u;
};

constexpr CodebookConstants constants_of(Codebook codebook) {
  CodebookConstants constants;
  constants.multiplier = codebook == Codebook::three_inst ? kThreeInstMultiplier : kMcgMultiplier;
  constants.addend = codebook == Codebook::three_inst ? kThreeInstAddend : 0;
  constants.repair_addend = constants.addend + (constants.addend << 16);
  return constants;
}

}  // namespace pergola::cuda
