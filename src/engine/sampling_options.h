#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pergola {

struct GenerationConfig;

/// How the next token is chosen. The steps, in this order (that of Hugging Face's generate and of the other common
/// engines):
///
/// 1. tokens that the mask forbids are out;
/// 2. `logit_bias` is added;
/// 3. `repetition_penalty` divides positive logits and multiplies negative ones of every token of the prompt or the
/// answer so far;
/// 4. `frequency_penalty` times its count in the answer so far, and `presence_penalty` if it is in there, are
/// subtracted from a token's logit;
/// 5. temperature 0: the largest logit wins, the lowest id among equals. Otherwise logits are divided by the
/// temperature;
/// 6. `top_k` keeps the k most probable tokens;
/// 7. `top_p` keeps the fewest most probable tokens whose share of what 6 left is at least p;
/// 8. `min_p` drops tokens less probable than min_p times the most probable one;
/// 9. one token is drawn from the rest.
///
/// Among equally probable tokens 6 and 7 keep those with the lower ids.
struct SamplingOptions {
  double temperature = 1.0;                                ///< 0 to 100; 0 is greedy
  std::int64_t top_k = 0;                                  ///< 0 is off
  double top_p = 1.0;                                      ///< 0 to 1; 1 is off, 0 keeps one token
  double min_p = 0.0;                                      ///< 0 to 1; 0 is off
  double repetition_penalty = 1.0;                         ///< above 0, to 100; 1 is off
  double frequency_penalty = 0.0;                          ///< -2 to 2
  double presence_penalty = 0.0;                           ///< -2 to 2
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< token and what is added, -100 to 100
  std::optional<std::uint64_t>
      seed;  ///< same seed, same logits: same tokens. Without one the operating system gives one

  bool operator==(const SamplingOptions&) const = default;
};

/// What a model's generation_config.json asks for. `do_sample: false` is greedy; what the file leaves out keeps the
/// default above.
SamplingOptions sampling_defaults(const GenerationConfig& config);

/// Throws Error naming the first field that is out of range.
void validate(const SamplingOptions& options, std::int64_t vocab_size);

}  // namespace pergola
