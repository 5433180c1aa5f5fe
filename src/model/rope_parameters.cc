#include "model/rope_parameters.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

namespace pergola {

namespace {

constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;

/// theta^(2j/dims), as transformers computes it.
float inverse_frequency(double theta, int j, int dims) {
  return std::pow(static_cast<float>(theta), static_cast<float>(2 * j) / static_cast<float>(dims));
}

double read_factor(const Config& rope) {
  return rope.require_float("factor", 1.0, 1024.0);
}

/// The context before stretching; some families keep it beside the rope parameters.
double original_context(const Config& rope, const Config& text) {
  const Config& owner = text.has("original_max_position_embeddings") ? text : rope;
  return static_cast<double>(owner.require_int("original_max_position_embeddings", 1, kMaxContext));
}

void apply_linear(const Config& rope, RopeParameters& result) {
  const auto factor = static_cast<float>(read_factor(rope));
  for (float& frequency : result.inv_freq) frequency /= factor;
}

void apply_llama3(const Config& rope, const Config& text, RopeParameters& result) {
  const auto factor = static_cast<float>(read_factor(rope));
  const auto low = static_cast<float>(rope.require_float("low_freq_factor", 1e-3, 1e3));
  const auto high = static_cast<float>(rope.require_float("high_freq_factor", 1e-3, 1e3));
  if (high <= low) rope.reject("high_freq_factor", "this is not above low_freq_factor");
  const auto original = static_cast<float>(original_context(rope, text));
  for (float& frequency : result.inv_freq) {
    const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
    if (wavelength > original / low) {
      frequency /= factor;
    } else if (wavelength >= original / high) {
      const float smooth = (original / wavelength - low) / (high - low);
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

/// The attention factor: as given, or from `factor`, `mscale` and `mscale_all_dim`.
double read_yarn_magnitude(const Config& rope, double factor) {
  const double scale = rope.get_float("mscale", 0.0, 0.0, 1e3);
  const double scale_all = rope.get_float("mscale_all_dim", 0.0, 0.0, 1e3);
  const bool both = scale > 0 && scale_all > 0;
  const double derived =
      both ? yarn_magnitude(factor, scale) / yarn_magnitude(factor, scale_all) : yarn_magnitude(factor, 1.0);
  return rope.get_float("attention_factor", derived, 1e-3, 1e3);
}

void apply_yarn(const Config& rope, const Config& text, double theta, RopeParameters& result) {
  const double original = original_context(rope, text);
  const double factor =
      rope.has("factor") ? read_factor(rope)
                         : static_cast<double>(text.require_int("max_position_embeddings", 1, kMaxContext)) / original;
  const double fast = rope.get_float("beta_fast", 32.0, 1e-3, 1e6);
  const double slow = rope.get_float("beta_slow", 1.0, 1e-3, 1e6);
  const double dims = result.dims;
  const auto pair_of_turns = [&](double turns) {
    return dims * std::log(original / (2 * std::numbers::pi * turns)) / (2 * std::log(theta));
  };
  const bool truncate = rope.get_bool("truncate", true);
  double low = pair_of_turns(fast);
  double high = pair_of_turns(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (high == low) high += 0.001;
  for (std::size_t j = 0; j < result.inv_freq.size(); ++j) {
    const float ramp =
        std::clamp((static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float position = inverse_frequency(theta, static_cast<int>(j), result.dims);
    const float kept = 1 - ramp;
    result.inv_freq[j] = 1.0f / (static_cast<float>(factor) * position) * (1 - kept) + 1.0f / position * kept;
  }
  result.magnitude = static_cast<float>(read_yarn_magnitude(rope, factor));
}

void apply_longrope(const Config& rope, const Config& text, double theta, RopeParameters& result) {
  const double original = original_context(rope, text);
  const double context = static_cast<double>(text.require_int("max_position_embeddings", 1, kMaxContext));
  const double factor = rope.get_float("factor", context / original, 1e-3, 1e6);
  const auto found = rope.json().find("short_factor");
  if (found == rope.json().end() || !found->is_array() || found->size() != result.inv_freq.size())
    rope.reject("short_factor", "expected a list of {} numbers, one for each rotated pair", result.inv_freq.size());
  for (std::size_t j = 0; j < result.inv_freq.size(); ++j) {
    if (!(*found)[j].is_number() || !((*found)[j].get<double>() > 0))
      rope.reject("short_factor", "entry {} is not a positive number", j);
    result.inv_freq[j] = 1.0f / ((*found)[j].get<float>() * inverse_frequency(theta, static_cast<int>(j), result.dims));
  }
  const double derived = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  result.magnitude = static_cast<float>(rope.get_float("attention_factor", derived, 1e-3, 1e3));
  if (context > original) result.max_positions = static_cast<std::int64_t>(original);
}

}  // namespace

RopeParameters plain_rope(double theta, int dims) {
  RopeParameters result;
  result.dims = dims;
  for (int j = 0; j < dims / 2; ++j) result.inv_freq.push_back(1.0f / inverse_frequency(theta, j, dims));
  return result;
}

RopeParameters read_rope(const Config& text, std::int64_t head_dim, const RopeDefaults& defaults) {
  std::optional<Config> nested = text.object("rope_parameters");
  if (!nested) nested = text.object("rope_scaling");
  if (nested && !defaults.layer_type.empty() && nested->has(defaults.layer_type))
    nested = nested->object(defaults.layer_type);
  const Config& rope = nested ? *nested : text;
  const Config& theta_owner = rope.has("rope_theta") ? rope : text;
  const double theta = defaults.theta ? theta_owner.get_float("rope_theta", *defaults.theta, 1.0 + 1e-6, 1e12)
                                      : theta_owner.require_float("rope_theta", 1.0 + 1e-6, 1e12);
  const double outer = text.get_float("partial_rotary_factor", defaults.partial_factor, 0.0, 1.0);
  const double partial = rope.get_float("partial_rotary_factor", outer, 0.0, 1.0);

  const int dims = static_cast<int>(static_cast<double>(head_dim) * partial);
  if (dims < 2 || dims % 2 != 0) {
    rope.reject("partial_rotary_factor", "{} of a head of {} values is not an even number of rotated values", partial,
                head_dim);
  }
  RopeParameters result = plain_rope(theta, dims);
  const std::string type = nested ? rope.get_string("rope_type", rope.get_string("type", "default")) : "default";
  if (type == "linear") {
    apply_linear(rope, result);
  } else if (type == "llama3") {
    apply_llama3(rope, text, result);
  } else if (type == "yarn") {
    apply_yarn(rope, text, theta, result);
  } else if (type == "longrope" || type == "su") {
    apply_longrope(rope, text, theta, result);
  } else if (type != "default") {
    rope.reject("rope_type",
                "the rotary embedding '{}' is not supported; 'default', 'linear', 'llama3', 'yarn' and 'longrope' are",
                type);
  }
  if (rope.has("llama_4_scaling_beta")) {
    result.query_growth = static_cast<float>(rope.get_float("llama_4_scaling_beta", 0.0, 0.0, 1e3));
    result.query_growth_length = static_cast<std::int64_t>(original_context(rope, text));
  }
  return result;
}

}  // namespace pergola
