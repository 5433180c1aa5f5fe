#include "cli/sampling_options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>

#include "base/error.h"

namespace pergola {
namespace {

std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  std::int32_t token = 0;
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto [after_token, token_error] = std::from_chars(text.data(), end, token);
  if (token_error == std::errc() && after_token != end && *after_token == '=') {
    const auto [after_value, value_error] = std::from_chars(after_token + 1, end, value);
    if (value_error == std::errc() && after_value == end) return {token, value};
  }
  fail({.field = "--logit-bias"}, "'{}' is not a token id and a number, such as 12=-5.5", text);
}

/// The first of the three that is set: command line, model, built-in.
template <typename T>
T first_of(const std::optional<T>& said, const std::optional<T>& model, T built_in) {
  return said ? *said : model ? *model : built_in;
}

}  // namespace

void add_sampling_options(CLI::App& command, SamplingArguments& arguments) {
  constexpr const char* kGroup = "Sampling (defaults: the model's generation_config.json)";
  CLI::Option* temperature =
      command.add_option("--temperature", arguments.temperature, "0: always the most likely token")->group(kGroup);
  command.add_flag("--greedy", arguments.greedy, "The same as --temperature 0")->excludes(temperature)->group(kGroup);
  command.add_option("--top-k", arguments.top_k, "Only the k most likely tokens; 0: all")->group(kGroup);
  command.add_option("--top-p", arguments.top_p, "Only the most likely tokens that together reach p")->group(kGroup);
  command.add_option("--min-p", arguments.min_p, "Only tokens at least p times as likely as the likeliest")
      ->group(kGroup);
  command.add_option("--repetition-penalty", arguments.repetition_penalty, "Above 1: avoid tokens of prompt and text")
      ->group(kGroup);
  command.add_option("--presence-penalty", arguments.presence_penalty, "Subtracted from logits of tokens in the text")
      ->group(kGroup);
  command.add_option("--frequency-penalty", arguments.frequency_penalty, "The same for every time they came")
      ->group(kGroup);
  command.add_option("--logit-bias", arguments.logit_bias, "Added to a token's logit: ID=VALUE; may be repeated")
      ->allow_extra_args(false)
      ->group(kGroup);
  command.add_option("--seed", arguments.seed, "Same seed, same text (default: a new one each time)")->group(kGroup);
}

SamplingOptions sampling_options(const SamplingArguments& arguments, const GenerationConfig& defaults) {
  const SamplingOptions built_in;
  const bool model_is_greedy = defaults.do_sample.has_value() && !*defaults.do_sample;
  const double temperature = model_is_greedy ? 0.0 : defaults.temperature.value_or(built_in.temperature);
  SamplingOptions options{
      .temperature = arguments.greedy ? 0.0 : arguments.temperature.value_or(temperature),
      .top_k = first_of(arguments.top_k, defaults.top_k, built_in.top_k),
      .top_p = first_of(arguments.top_p, defaults.top_p, built_in.top_p),
      .min_p = first_of(arguments.min_p, defaults.min_p, built_in.min_p),
      .repetition_penalty =
          first_of(arguments.repetition_penalty, defaults.repetition_penalty, built_in.repetition_penalty),
      .frequency_penalty =
          first_of(arguments.frequency_penalty, defaults.frequency_penalty, built_in.frequency_penalty),
      .presence_penalty = first_of(arguments.presence_penalty, defaults.presence_penalty, built_in.presence_penalty),
      .seed = arguments.seed};
  for (const std::string& bias : arguments.logit_bias) options.logit_bias.push_back(parse_bias(bias));
  return options;
}

}  // namespace pergola
