#include "trellis/codebook.h"

namespace pergola {

std::string_view name_of(Codebook codebook) {
  switch (codebook) {
    case Codebook::three_inst:
      return "3inst";
    case Codebook::mcg:
      return "mcg";
    case Codebook::mul1:
      return "mul1";
  }
  return "unknown";
}

namespace {

/// The two halves of a masked product, added with one rounding: their float sum is exact.
Half add_halves(std::uint32_t product) {
  const std::uint32_t masked = (product & 0x8FFF8FFFu) ^ 0x3B603B60u;
  return to_half(to_float(Half{static_cast<std::uint16_t>(masked)}) +
                 to_float(Half{static_cast<std::uint16_t>(masked >> 16)}));
}

}  // namespace

Half decode_state(Codebook codebook, std::uint16_t state) {
  switch (codebook) {
    case Codebook::three_inst:
      return add_halves(state * kThreeInstMultiplier + kThreeInstAddend);
    case Codebook::mcg:
      return add_halves(state * kMcgMultiplier);
    case Codebook::mul1:
      break;
  }
  const std::uint32_t product = state * kMul1Multiplier;
  return mul1_value((product & 0xFF) + ((product >> 8) & 0xFF) + ((product >> 16) & 0xFF) + (product >> 24));
}

// RN16((1024 + sum) * 0x1EEE + 0xC931) as one fused operation: exact in float before the rounding.
Half mul1_value(std::uint32_t byte_sum) {
  return to_half(static_cast<float>(byte_sum) * kMul1Factor + kMul1Offset);
}

}  // namespace pergola
