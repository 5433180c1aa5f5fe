#include "backend/cpu/moe_routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "backend/operations.h"

namespace pergola::cpu {

namespace {

/// The `top_k` largest values in order, equal ones by the lowest index. `values` receives them.
void choose(const float* scores, std::int64_t count, std::int64_t top_k, std::int32_t* experts, float* values) {
  assert(top_k >= 1 && top_k <= count);
  std::int64_t chosen = 0;
  for (std::int64_t expert = 0; expert < count; ++expert) {
    const float score = scores[expert];
    if (chosen == top_k && !(score > values[top_k - 1])) continue;
    std::int64_t at = chosen < top_k ? chosen++ : top_k - 1;
    for (; at > 0 && score > values[at - 1]; --at) {
      values[at] = values[at - 1];
      experts[at] = experts[at - 1];
    }
    values[at] = score;
    experts[at] = static_cast<std::int32_t>(expert);
  }
}

/// Sets the scores of experts outside the best groups to -infinity. A group is as good as its best two scores.
void keep_best_groups(const SigmoidRouting& routing, float* scores, std::int64_t count) {
  const std::int64_t width = count / routing.groups;
  float sums[kMaxExpertGroups] = {};
  float best[kMaxExpertGroups] = {};
  std::int32_t kept[kMaxExpertGroups] = {};
  for (int g = 0; g < routing.groups; ++g) {
    float two[2] = {0, 0};
    std::int32_t ignored[2];
    choose(scores + g * width, width, std::min<std::int64_t>(2, width), ignored, two);
    sums[g] = two[0] + two[1];
  }
  choose(sums, routing.groups, routing.top_groups, kept, best);
  for (int g = 0; g < routing.groups; ++g) {
    if (std::find(kept, kept + routing.top_groups, g) == kept + routing.top_groups)
      std::fill_n(scores + g * width, width, -std::numeric_limits<float>::infinity());
  }
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

}  // namespace

void route_row(const float* logits, std::int64_t count, std::int64_t top_k, std::int32_t* experts, float* weights) {
  choose(logits, count, top_k, experts, weights);
  const float largest = weights[0];
  float total = 0;
  for (std::int64_t i = 0; i < top_k; ++i) total += weights[i] = std::exp(weights[i] - largest);
  for (std::int64_t i = 0; i < top_k; ++i) weights[i] /= total;
}

void route_row_softmax_all(const float* logits, std::int64_t count, std::int64_t top_k, std::int32_t* experts,
                           float* weights) {
  choose(logits, count, top_k, experts, weights);
  const float largest = weights[0];
  float total = 0;
  for (std::int64_t e = 0; e < count; ++e) total += std::exp(logits[e] - largest);
  for (std::int64_t i = 0; i < top_k; ++i) weights[i] = std::exp(weights[i] - largest) / total;
}

void route_row_sigmoid(const SigmoidRouting& routing, float* logits, std::int64_t count, std::int64_t top_k,
                       std::int32_t* experts, float* weights) {
  const auto correction = [&](std::int64_t e) { return routing.correction == nullptr ? 0.0f : routing.correction[e]; };
  for (std::int64_t e = 0; e < count; ++e) logits[e] = sigmoid(logits[e]) + correction(e);
  if (routing.groups > 1) keep_best_groups(routing, logits, count);
  choose(logits, count, top_k, experts, weights);
  float total = 1e-20f;
  for (std::int64_t i = 0; i < top_k; ++i) total += weights[i] -= correction(experts[i]);
  for (std::int64_t i = 0; i < top_k; ++i) weights[i] *= routing.scale / total;
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
