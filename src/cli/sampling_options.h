#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling_options.h"
#include "format/generation_config.h"

namespace pergola {

/// How to choose tokens, as far as the command line says.
struct SamplingArguments {
  bool greedy = false;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::string> logit_bias;  ///< "ID=VALUE"
  std::optional<std::uint64_t> seed;
};

void add_sampling_options(CLI::App& command, SamplingArguments& arguments);

/// The command line over the model's own defaults. Throws Error for a bias that is not ID=VALUE.
SamplingOptions sampling_options(const SamplingArguments& arguments, const GenerationConfig& defaults);

}  // namespace pergola
