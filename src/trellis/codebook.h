#pragma once

#include <cstdint>
#include <string_view>

#include "base/half.h"

namespace pergola {

/// The three computed codebooks of EXL3. A 16-bit trellis state maps to one binary16 value.
enum class Codebook : std::uint8_t { three_inst, mcg, mul1 };

inline constexpr std::uint32_t kThreeInstMultiplier = 89226354u;
inline constexpr std::uint32_t kThreeInstAddend = 64248484u;
inline constexpr std::uint32_t kMcgMultiplier = 0xCBAC1FEDu;
inline constexpr std::uint32_t kMul1Multiplier = 0x83DCD12Du;

/// "3inst", "mcg" or "mul1", as checkpoints and the command line write them.
std::string_view name_of(Codebook codebook);

/// The value of a state, exact to the bit (docs/exl3.md, "Codebooks").
Half decode_state(Codebook codebook, std::uint16_t state);

/// The mul1 value of a product whose four bytes sum to `byte_sum`, 0..1020.
Half mul1_value(std::uint32_t byte_sum);

/// A mul1 value is its byte sum times this factor plus this offset, up to the final rounding to binary16 (at most
/// 2^-10).
inline constexpr float kMul1Factor = 0.00676727294921875f;  // 1774 / 2^18
inline constexpr float kMul1Offset = -3.453125f;

}  // namespace pergola
