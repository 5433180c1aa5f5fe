#include "backend/reference/moe.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/reference/arithmetic.h"
#include "backend/reference/linear.h"
#include "backend/reference/weights.h"

namespace pergola::reference {

namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// down(activation(gate(x)) * up(x)) for `rows` packed rows.
void apply_expert(const MoeView::Expert& expert, Activation activation, const float* x, std::int64_t x_stride,
                  std::int64_t rows, float* y, std::int64_t y_stride, ThreadPool* pool) {
  const std::int64_t width = expert.gate.out_features;
  std::vector<float> gate(index(rows * width));
  std::vector<float> up(index(rows * width));
  apply_linear(expert.gate, x, x_stride, rows, gate.data(), width, pool);
  apply_linear(expert.up, x, x_stride, rows, up.data(), width, pool);
  gated_activation(activation, gate.data(), up.data(), rows * width, gate.data());
  apply_linear(expert.down, gate.data(), width, rows, y, y_stride, pool);
}

/// The picks of all tokens, ordered by expert: entries of expert e are [first[e], first[e + 1]), `entry` maps a pick
/// (token * top_k + rank) to its place.
struct ExpertOrder {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> token;  ///< of each place
  std::vector<std::int64_t> entry;
};

ExpertOrder order_by_expert(std::span<const Pick> picks, std::int64_t experts, std::int64_t top_k) {
  ExpertOrder order{std::vector<std::int64_t>(index(experts + 1), 0), std::vector<std::int64_t>(picks.size()),
                    std::vector<std::int64_t>(picks.size())};
  for (const Pick& pick : picks) ++order.first[index(pick.expert) + 1];
  std::partial_sum(order.first.begin(), order.first.end(), order.first.begin());
  std::vector<std::int64_t> next(order.first.begin(), order.first.end() - 1);
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const std::int64_t place = next[index(picks[i].expert)]++;
    order.entry[i] = place;
    order.token[index(place)] = static_cast<std::int64_t>(i) / top_k;
  }
  return order;
}

/// Output rows of every pick, in the order's places; zeros for experts that are not here.
std::vector<float> apply_routed(const MoeView& view, const Tensor& x, const ExpertOrder& order, ThreadPool& pool) {
  std::vector<float> outputs(order.token.size() * index(view.hidden));
  pool.parallel_for(static_cast<std::int64_t>(view.experts.size()), [&](std::int64_t e, int) {
    const std::int64_t begin = order.first[index(view.first_expert + e)];
    const std::int64_t rows = order.first[index(view.first_expert + e) + 1] - begin;
    if (rows == 0) return;
    std::vector<float> gathered(index(rows * view.hidden));
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(x.row<float>(order.token[index(begin + i)]), view.hidden, gathered.data() + i * view.hidden);
    }
    apply_expert(view.experts[index(e)], view.activation, gathered.data(), view.hidden, rows,
                 outputs.data() + begin * view.hidden, view.hidden, nullptr);
  });
  return outputs;
}

}  // namespace

void route(std::span<const float> logits, std::span<Pick> picks) {
  assert(picks.size() <= logits.size());
  std::vector<std::int32_t> experts(logits.size());
  std::iota(experts.begin(), experts.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(picks.size()), experts.end(),
                    better);
  const double largest = logits[static_cast<std::size_t>(experts[0])];
  double total = 0;
  for (std::size_t i = 0; i < picks.size(); ++i)
    total += std::exp(logits[static_cast<std::size_t>(experts[i])] - largest);
  for (std::size_t i = 0; i < picks.size(); ++i) {
    picks[i] = {experts[i],
                static_cast<float>(std::exp(logits[static_cast<std::size_t>(experts[i])] - largest) / total)};
  }
}

namespace {

/// Sets the choosing scores of experts outside the best groups to -infinity.
void keep_best_groups(const MoeView& view, std::vector<double>& scores) {
  const std::size_t width = scores.size() / static_cast<std::size_t>(view.groups);
  std::vector<std::pair<double, int>> ranked;
  for (int g = 0; g < view.groups; ++g) {
    std::vector<double> members(scores.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(g) * width),
                                scores.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(g + 1) * width));
    std::sort(members.begin(), members.end(), std::greater<>());
    ranked.emplace_back(-(members[0] + (width > 1 ? members[1] : 0.0)), g);
  }
  std::sort(ranked.begin(), ranked.end());
  for (std::size_t i = static_cast<std::size_t>(view.top_groups); i < ranked.size(); ++i) {
    std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(ranked[i].second) * width), width,
                -std::numeric_limits<double>::infinity());
  }
}

void route_sigmoid(const MoeView& view, std::span<const float> logits, std::span<Pick> picks) {
  std::vector<float> correction(logits.size(), 0.0f);
  if (view.correction) read_dense(*view.correction, 0, static_cast<std::int64_t>(logits.size()), correction.data());
  std::vector<double> scores;
  for (std::size_t e = 0; e < logits.size(); ++e) scores.push_back(sigmoid(logits[e]) + correction[e]);
  if (view.groups > 1) keep_best_groups(view, scores);
  std::vector<std::int32_t> experts(logits.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::stable_sort(experts.begin(), experts.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  double total = 1e-20;
  for (std::size_t i = 0; i < picks.size(); ++i) total += sigmoid(logits[static_cast<std::size_t>(experts[i])]);
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const double score = sigmoid(logits[static_cast<std::size_t>(experts[i])]);
    picks[i] = {experts[i], static_cast<float>(score / total * view.routed_scale)};
  }
}

}  // namespace

void route(const MoeView& view, std::span<const float> logits, std::span<Pick> picks) {
  if (view.score == RouterScore::sigmoid) return route_sigmoid(view, logits, picks);
  route(logits, picks);
  if (view.score == RouterScore::softmax_top_k) return;
  const double largest = logits[static_cast<std::size_t>(picks[0].expert)];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  for (Pick& pick : picks)
    pick.weight = static_cast<float>(std::exp(logits[static_cast<std::size_t>(pick.expert)] - largest) / total);
}

void gated_activation(Activation activation, const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    double value = 0;
    switch (activation) {
      case Activation::silu:
        value = silu(gate[i]) * up[i];
        break;
      case Activation::gelu_tanh:
        value = gelu_tanh(gate[i]) * up[i];
        break;
      case Activation::clamped_swiglu: {
        const double g = std::min(gate[i], kSwigluLimit);
        value = g * sigmoid(kSwigluAlpha * g) * (std::clamp(up[i], -kSwigluLimit, kSwigluLimit) + 1.0);
        break;
      }
    }
    out[i] = static_cast<float>(value);
  }
}

void moe(const MoeView& view, const Tensor& x, const Tensor& out, ThreadPool& pool) {
  const std::int64_t rows = x.rows;
  const std::int64_t experts = view.router.out_features;
  std::vector<float> logits(index(rows * experts));
  apply_linear(view.router, x.data<float>(), x.stride, rows, logits.data(), experts, &pool);
  std::vector<Pick> picks(index(rows * view.top_k));
  for (std::int64_t r = 0; r < rows; ++r) {
    route(view, std::span(logits).subspan(index(r * experts), index(experts)),
          std::span(picks).subspan(index(r * view.top_k), index(view.top_k)));
  }
  const ExpertOrder order = order_by_expert(picks, experts, view.top_k);
  const std::vector<float> routed = apply_routed(view, x, order, pool);

  std::vector<float> shared(view.shared ? index(rows * view.hidden) : 0);
  std::vector<float> gate(view.shared_gate ? index(rows) : 0);
  if (view.shared)
    apply_expert(*view.shared, view.activation, x.data<float>(), x.stride, rows, shared.data(), view.hidden, &pool);
  if (view.shared_gate) apply_linear(*view.shared_gate, x.data<float>(), x.stride, rows, gate.data(), 1);

  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < view.hidden; ++c) {
      double sum = 0;
      for (std::int64_t i = r * view.top_k; i < (r + 1) * view.top_k; ++i) {
        sum += static_cast<double>(picks[index(i)].weight) * routed[index(order.entry[index(i)] * view.hidden + c)];
      }
      if (view.shared) sum += (view.shared_gate ? sigmoid(gate[index(r)]) : 1.0) * shared[index(r * view.hidden + c)];
      out.row<float>(r)[c] = static_cast<float>(sum);
    }
  }
}

}  // namespace pergola::reference
