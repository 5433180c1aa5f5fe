#pragma once

#include <cstdint>
#include <span>

namespace pergola {

/// log(sum(exp(logits))), every column counted, none masked.
double log_sum_exp(std::span<const float> logits);

/// -log p(token) in nats under softmax(logits).
double token_loss(std::span<const float> logits, std::int32_t token);

/// How far the distribution of one position is from another.
struct Divergence {
  double kl = 0;          ///< KL(reference || model) in nats
  bool same_top = false;  ///< both have their largest logit at the same token (the lowest of equals)
};

/// Compares softmax(model) with softmax(reference); both have the same length.
Divergence divergence(std::span<const float> reference, std::span<const float> model);

}  // namespace pergola
