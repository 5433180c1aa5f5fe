#include "engine/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

namespace pergola {
namespace {

// Where the largest weights whose sum is `target` end: all above the threshold are in, and the first `ties` of those
// equal to it.
struct Cut {
  float threshold;
  std::int64_t ties;
};

// Radix selection from the top, for floats that are not negative (they are ordered as their bits are): each round sums
// up the weights by the next digit of their bits, within the bucket that the rounds before chose.
Cut find_cut(std::span<const float> weights, double target) {
  constexpr int digit_bits[] = {11, 10, 10};  // the sign is 0
  std::uint32_t prefix = 0;
  int undecided = 31;
  double above = 0.0;
  for (const int bits : digit_bits) {
    std::array<double, 2048> sums{};
    const int shift = undecided - bits;
    for (const float weight : weights) {
      const auto key = std::bit_cast<std::uint32_t>(weight);
      if (key >> undecided == prefix) sums[key >> shift & ((1u << bits) - 1)] += weight;
    }
    std::uint32_t chosen = 0;
    double sum = above;
    for (std::uint32_t digit = 1u << bits; digit-- > 0 && (sum < target || sum == above);) {
      if (sums[digit] == 0.0) continue;
      chosen = digit;
      above = sum;
      sum += sums[digit];
    }
    prefix = prefix << bits | chosen;
    undecided = shift;
  }
  const auto threshold = std::bit_cast<float>(prefix);
  return {threshold, std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil((target - above) / threshold)))};
}

}  // namespace

void select_largest(std::span<const float> logits, std::span<Candidate> candidates) {
  assert(logits.size() >= candidates.size());
  // A heap with the least candidate on top; most logits fail the comparison with it.
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const std::size_t count = candidates.size();
  for (std::size_t i = 0; i < count; ++i) candidates[i] = {static_cast<std::int32_t>(i), logits[i]};
  std::ranges::make_heap(candidates, better);
  for (std::size_t i = count; i < logits.size(); ++i) {
    if (!(logits[i] > candidates.front().logit)) continue;
    std::ranges::pop_heap(candidates, better);
    candidates.back() = {static_cast<std::int32_t>(i), logits[i]};
    std::ranges::push_heap(candidates, better);
  }
  std::ranges::sort(candidates, {}, &Candidate::token);
}

void keep_largest_share(std::span<float> weights, double share) {
  double total = 0.0;
  for (const float weight : weights) total += weight;
  Cut cut = find_cut(weights, share * total);
  for (float& weight : weights) {
    if (weight < cut.threshold || (weight == cut.threshold && cut.ties-- <= 0)) weight = 0.0f;
  }
}

}  // namespace pergola
