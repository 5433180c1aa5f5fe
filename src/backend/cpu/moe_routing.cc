#include "backend/cpu/moe_routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pergola::cpu {

void route_row(const float* logits, std::int64_t count, std::int64_t top_k, std::int32_t* experts, float* weights) {
  assert(top_k >= 1 && top_k <= count);
  // `weights` holds the logits of the chosen, sorted, until all are known.
  std::int64_t chosen = 0;
  for (std::int64_t expert = 0; expert < count; ++expert) {
    const float logit = logits[expert];
    if (chosen == top_k && !(logit > weights[top_k - 1])) continue;
    std::int64_t at = chosen < top_k ? chosen++ : top_k - 1;
    for (; at > 0 && logit > weights[at - 1]; --at) {
      weights[at] = weights[at - 1];
      experts[at] = experts[at - 1];
    }
    weights[at] = logit;
    experts[at] = static_cast<std::int32_t>(expert);
  }
  const float largest = weights[0];
  float total = 0;
  for (std::int64_t i = 0; i < top_k; ++i) total += weights[i] = std::exp(weights[i] - largest);
  for (std::int64_t i = 0; i < top_k; ++i) weights[i] /= total;
}

void order_by_expert(const std::int32_t* experts, std::int64_t rows, std::int64_t top_k, std::int64_t expert_count,
                     const ExpertOrder& order) {
  std::fill_n(order.first, expert_count + 1, 0);
  for (std::int64_t pick = 0; pick < rows * top_k; ++pick) ++order.first[experts[pick] + 1];
  for (std::int64_t e = 0; e < expert_count; ++e) order.first[e + 1] += order.first[e];
  // first[e] runs through the places of e while they are given out, and ends where first[e + 1] began.
  for (std::int64_t pick = 0; pick < rows * top_k; ++pick) {
    const std::int64_t place = order.first[experts[pick]]++;
    order.place[pick] = place;
    order.rows[place] = static_cast<std::int32_t>(pick / top_k);
  }
  for (std::int64_t e = expert_count; e > 0; --e) order.first[e] = order.first[e - 1];
  order.first[0] = 0;
}

}  // namespace pergola::cpu
