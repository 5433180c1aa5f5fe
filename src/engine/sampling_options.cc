#include "engine/sampling_options.h"

#include "base/error.h"
#include "format/generation_config.h"

namespace pergola {
namespace {

void check_range(const char* field, double value, double least, double most) {
  if (!(value >= least && value <= most)) fail({.field = field}, "must be from {} to {}, is {}", least, most, value);
}

}  // namespace

void validate(const SamplingOptions& options, std::int64_t vocab_size) {
  check_range("temperature", options.temperature, 0.0, 100.0);
  if (options.top_k < 0) fail({.field = "top_k"}, "must not be negative, is {}", options.top_k);
  check_range("top_p", options.top_p, 0.0, 1.0);
  check_range("min_p", options.min_p, 0.0, 1.0);
  check_range("repetition_penalty", options.repetition_penalty, 0.01, 100.0);
  check_range("frequency_penalty", options.frequency_penalty, -2.0, 2.0);
  check_range("presence_penalty", options.presence_penalty, -2.0, 2.0);
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      fail({.field = "logit_bias"}, "token {} is not from 0 to {}", token, vocab_size - 1);
    }
    check_range("logit_bias", bias, -100.0, 100.0);
  }
}

SamplingOptions sampling_defaults(const GenerationConfig& config) {
  SamplingOptions options;
  options.temperature = config.do_sample == false ? 0.0 : config.temperature.value_or(options.temperature);
  options.top_k = config.top_k.value_or(options.top_k);
  options.top_p = config.top_p.value_or(options.top_p);
  options.min_p = config.min_p.value_or(options.min_p);
  options.repetition_penalty = config.repetition_penalty.value_or(options.repetition_penalty);
  options.presence_penalty = config.presence_penalty.value_or(options.presence_penalty);
  options.frequency_penalty = config.frequency_penalty.value_or(options.frequency_penalty);
  return options;
}

}  // namespace pergola
