#pragma once

#include <cstdint>

namespace pergola::cpu {

/// The `top_k` largest of `count` logits, largest first, equal ones by the lowest expert; weights are the softmax over
/// those logits.
void route_row(const float* logits, std::int64_t count, std::int64_t top_k, std::int32_t* experts, float* weights);

/// The picks of one row by sigmoid scores, with correction and groups (RouterScore::sigmoid). `correction` [count] may
/// be null. `logits` become the choosing scores.
struct SigmoidRouting {
  const float* correction = nullptr;
  int groups = 1;
  int top_groups = 1;
  float scale = 1.0f;
};
void route_row_sigmoid(const SigmoidRouting& routing, float* logits, std::int64_t count, std::int64_t top_k,
                       std::int32_t* experts, float* weights);

/// As route_row, but the weights are those of the softmax over all logits.
void route_row_softmax_all(const float* logits, std::int64_t count, std::int64_t top_k, std::int32_t* experts,
                           float* weights);

/// The picks of all rows, ordered by expert and then by row.
struct ExpertOrder {
  std::int64_t* first;  ///< [experts + 1]: places of expert e are first[e] .. first[e + 1] - 1
  std::int32_t* rows;   ///< row of each place
  std::int64_t* place;  ///< of each pick (row * top_k + rank)
};

/// Fills the order from picks experts[rows * top_k].
void order_by_expert(const std::int32_t* experts, std::int64_t rows, std::int64_t top_k, std::int64_t expert_count,
                     const ExpertOrder& order);

}  // namespace pergola::cpu
