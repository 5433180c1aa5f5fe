#include "model/rope_parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pergola {

namespace {

/// YaRN (Peng et al., 2023): frequencies that turn fewer than beta_slow times within the original context are divided
/// by `factor`, those that turn more than beta_fast times stay, with a linear ramp over the pairs between; cos and sin
/// grow by the attention factor.
void apply_yarn(const Config& rope, double theta, RopeParameters& result) {
  const double factor = rope.require_float("factor", 1.0, 1024.0);
  const double original =
      static_cast<double>(rope.require_int("original_max_position_embeddings", 1, std::int64_t{1} << 30));
  const double fast = rope.get_float("beta_fast", 32.0, 1e-3, 1e6);
  const double slow = rope.get_float("beta_slow", 1.0, 1e-3, 1e6);
  for (const char* field : {"mscale", "mscale_all_dim"}) {
    if (rope.has(field)) rope.reject(field, "YaRN with {} is not supported", field);
  }
  if (!rope.get_bool("truncate", true)) rope.reject("truncate", "YaRN without truncation is not supported");

  const double dims = result.dims;
  const auto pair_of_turns = [&](double turns) {
    return dims * std::log(original / (2 * std::numbers::pi * turns)) / (2 * std::log(theta));
  };
  const double low = std::clamp(std::floor(pair_of_turns(fast)), 0.0, dims - 1);
  double high = std::clamp(std::ceil(pair_of_turns(slow)), 0.0, dims - 1);
  if (high == low) high += 0.001;
  for (std::size_t j = 0; j < result.inv_freq.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(j) / dims);
    result.inv_freq[j] = static_cast<float>(frequency * ((1 - ramp) + ramp / factor));
  }
  result.magnitude = static_cast<float>(rope.get_float("attention_factor", 0.1 * std::log(factor) + 1.0, 1e-3, 1e3));
}

}  // namespace

RopeParameters read_rope(const Config& text, std::int64_t head_dim, double partial_factor_if_absent) {
  std::optional<Config> nested = text.object("rope_parameters");
  if (!nested) nested = text.object("rope_scaling");
  const Config& rope = nested ? *nested : text;
  const Config& theta_owner = rope.has("rope_theta") ? rope : text;
  const double theta = theta_owner.require_float("rope_theta", 1.0 + 1e-6, 1e12);
  const double outer = text.get_float("partial_rotary_factor", partial_factor_if_absent, 0.0, 1.0);
  const double partial = rope.get_float("partial_rotary_factor", outer, 0.0, 1.0);

  RopeParameters result;
  result.dims = static_cast<int>(static_cast<double>(head_dim) * partial);
  if (result.dims < 2 || result.dims % 2 != 0) {
    rope.reject("partial_rotary_factor", "{} of a head of {} values is not an even number of rotated values", partial,
                head_dim);
  }
  for (int j = 0; j < result.dims / 2; ++j)
    result.inv_freq.push_back(static_cast<float>(std::pow(theta, -2.0 * j / result.dims)));

  const std::string type = nested ? rope.get_string("rope_type", rope.get_string("type", "default")) : "default";
  if (type == "yarn") {
    apply_yarn(rope, theta, result);
  } else if (type != "default") {
    rope.reject("rope_type", "the rotary embedding '{}' is not supported; 'default' and 'yarn' are", type);
  }
  return result;
}

}  // namespace pergola
