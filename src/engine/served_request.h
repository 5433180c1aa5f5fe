#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/sampling_rule.h"
#include "engine/selection.h"

namespace pergola {

/// Natural logarithm of the probability that the model gave a token, before anything was done to its logits.
struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

/// A token as it was chosen. Valid during the call that hands it over.
struct SampledToken {
  std::int32_t token = 0;
  bool is_stop = false;               ///< ends the text and is no part of it; only then may `logprob` be of no interest
  float logprob = 0;                  ///< 0 unless asked for
  std::span<const TokenLogprob> top;  ///< the most probable ones first, as many as were asked for
};

/// How a request ended.
struct RequestOutcome {
  FinishReason finish = FinishReason::cancelled;
  std::string error;  ///< one sentence where finish is `failed`
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< tokens of the prompt that did not have to be computed
  std::int64_t answer_tokens = 0;  ///< without the stop token
};

/// Who is told what a request yields. Called by the engine's thread, in order, never two calls at a time.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  /// False ends the request: the listener has seen enough (a stop string).
  virtual bool on_token(const SampledToken& token) = 0;
  /// The last call, made exactly once.
  virtual void on_end(const RequestOutcome& outcome) = 0;
};

/// One text that is written among others.
struct ServedRequest {
  GenerationRequest generation;
  std::int64_t top_logprobs = -1;      ///< how many of the most probable tokens to report; -1: no logprobs at all
  std::unique_ptr<SamplingRule> rule;  ///< null: none
  std::shared_ptr<RequestListener> listener;
};

/// Requests are served in the order of their tickets.
using Ticket = std::uint64_t;

}  // namespace pergola
