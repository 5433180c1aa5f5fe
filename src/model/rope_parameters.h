#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/operations.h"
#include "format/config.h"

namespace pergola {

/// Rotary embedding as a configuration describes it.
struct RopeParameters {
  int dims = 0;                 ///< rotated values of a head
  std::vector<float> inv_freq;  ///< dims / 2
  float magnitude = 1.0f;       ///< factor of cos and sin
  float query_growth = 0.0f;    ///< Attention::query_growth (`llama_4_scaling_beta`)
  std::int64_t query_growth_length = 1;
  std::int64_t max_positions = 0;  ///< > 0: the frequencies hold for sequences up to this length only
};

/// What a family takes for fields that a configuration leaves out.
struct RopeDefaults {
  std::optional<double> theta;  ///< none: `rope_theta` must be there
  double partial_factor = 1.0;
  std::string_view layer_type = {};  ///< read `rope_parameters.LAYER_TYPE` where parameters differ by layer type
};

/// Reads `rope_parameters` (or the older `rope_scaling` with `rope_theta` beside it) of a text configuration. dims =
/// int(head_dim * partial_rotary_factor); inv_freq_j = theta^(-2j/dims), changed by the type:
///   default   not at all
///   linear    divided by `factor`
///   llama3    divided by `factor` where a turn takes more than original / low_freq_factor positions, unchanged where
///             it takes less than original / high_freq_factor, blended between
///   yarn      Peng et al., 2023: divided by `factor` where fewer than beta_slow turns fit into the original context,
///             unchanged above beta_fast turns, a linear ramp over the pairs between; cos and sin times an attention
///             factor
///   longrope  divided by `short_factor`, one a pair; cos and sin times an attention factor. Above the original context
///             such a model switches all positions to `long_factor`, which no engine with a cache can follow: the model
///             is limited to max_positions = the original context.
/// Arithmetic is fp32 as in transformers, whose tables models were trained with: at position 10,000 an ulp shows.
/// `mrope_section` and `mrope_interleaved` do not matter for text and are ignored. Throws Error for another type and
/// for values that are missing or out of range.
RopeParameters read_rope(const Config& text, std::int64_t head_dim, const RopeDefaults& defaults);

/// Unscaled frequencies.
RopeParameters plain_rope(double theta, int dims);

}  // namespace pergola
