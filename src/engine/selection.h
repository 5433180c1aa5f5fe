#pragma once

#include <cstdint>
#include <span>

namespace pergola {

/// A token and its logit.
struct Candidate {
  std::int32_t token;
  float logit;
};

/// Fills `candidates` with the largest of `logits` (at least as many), in the order of their tokens. Among equals the
/// first ones win.
void select_largest(std::span<const float> logits, std::span<Candidate> candidates);

/// Keeps the fewest largest `weights` (none negative, not all zero) whose sum is at least `share` of the sum of all, at
/// least one, and overwrites the others with 0; among equals the first ones stay. Time is linear, memory constant.
void keep_largest_share(std::span<float> weights, double share);

}  // namespace pergola
