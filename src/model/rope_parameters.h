#pragma once

#include <cstdint>
#include <vector>

#include "format/config.h"

namespace pergola {

/// Rotary embedding as a configuration describes it.
struct RopeParameters {
  int dims = 0;                 ///< rotated values of a head
  std::vector<float> inv_freq;  ///< dims / 2
  float magnitude = 1.0f;       ///< factor of cos and sin
};

/// Reads `rope_parameters` (or the older `rope_scaling` with `rope_theta` beside it) of a text configuration: types
/// "default" and "yarn". dims = int(head_dim * partial_rotary_factor); inv_freq_j = theta^(-2j/dims). `mrope_section`
/// and `mrope_interleaved` do not matter for text and are ignored. Throws Error for another type and for values that
/// are missing or out of range.
RopeParameters read_rope(const Config& text, std::int64_t head_dim, double partial_factor_if_absent);

}  // namespace pergola
