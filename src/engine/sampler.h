#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/random.h"
#include "engine/sampling_options.h"
#include "engine/selection.h"
#include "text/token_mask.h"

namespace pergola {

/// Chooses the tokens of one sequence. Allocates nothing after construction.
class Sampler {
 public:
  /// `mask` may be null (every token is allowed), else has `vocab_size` ids. Throws Error naming an option that is out
  /// of range.
  Sampler(const SamplingOptions& options, std::int64_t vocab_size, std::shared_ptr<const TokenMask> mask = nullptr);

  /// Tells it the prompt, which the repetition penalty counts. Call before the first sample.
  void begin(std::span<const std::int32_t> prompt);

  /// Chooses the next token from `logits` [vocab_size], which it overwrites. Throws Error when no finite logit is left
  /// or one is not a number. It does not count the token: see accept.
  std::int32_t sample(std::span<float> logits);

  /// Tells it that `token` was taken into the answer.
  void accept(std::int32_t token);

  /// The seed in use, given or drawn.
  std::uint64_t seed() const { return seed_; }

 private:
  bool has_penalties() const;
  void note(std::int32_t token);
  void penalize(std::span<float> logits) const;
  std::size_t draw(std::span<const float> weights);

  SamplingOptions options_;
  std::int64_t vocab_size_;
  std::shared_ptr<const TokenMask> mask_;
  std::uint64_t seed_;
  RandomStream random_;
  std::vector<Candidate> candidates_;  // top_k of them; empty when every token is one
  // Kept only when a penalty is on.
  std::vector<std::int32_t> answer_counts_;  // by token
  std::vector<bool> seen_;                   // by token: in the prompt or the answer
  std::vector<std::int32_t> seen_tokens_;    // those that are set in seen_
};

}  // namespace pergola
