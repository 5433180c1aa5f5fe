#include "quantize/observing_backend.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "backend/reference/moe.h"

namespace pergola {

std::unique_ptr<LinearGroup> ObservingBackend::bind_linears(std::span<const LinearView> members) {
  std::unique_ptr<LinearGroup> group = inner_.bind_linears(members);
  groups_[group.get()] = members.front().name;
  return group;
}

std::unique_ptr<Moe> ObservingBackend::bind_moe(const MoeView& view) {
  std::unique_ptr<Moe> bound = inner_.bind_moe(view);
  MoeProbe probe;
  probe.view = view;
  probe.view.experts.clear();
  probe.router = inner_.bind_linears(std::array{view.router});
  std::int64_t width = 0;
  const auto add = [&](const MoeView::Expert& expert, bool routed) {
    probe.experts.push_back(
        {expert.gate.name, expert.down.name, routed, inner_.bind_linears(std::array{expert.gate, expert.up})});
    width = std::max(width, expert.gate.out_features);
  };
  for (const MoeView::Expert& expert : view.experts) add(expert, true);
  if (view.shared) add(*view.shared, false);
  const std::int64_t rows = inner_.max_rows(), experts = std::ssize(view.experts);
  const DType type = inner_.activation_type();
  const std::size_t half = static_cast<std::size_t>(rows * width) * size_of(type);
  probe.buffer =
      inner_.allocate(2 * half + static_cast<std::size_t>(rows * experts) * sizeof(float), "calibration of experts");
  probe.gate = {probe.buffer.get(), 0, type, rows, width, width};
  probe.up = {probe.buffer.get(), static_cast<std::int64_t>(half), type, rows, width, width};
  probe.logits = {probe.buffer.get(), static_cast<std::int64_t>(2 * half), DType::f32, rows, experts, experts};
  moes_[bound.get()] = std::move(probe);
  return bound;
}

void ObservingBackend::linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) {
  observer_({groups_.at(&group), x, {}});
  inner_.linear(group, x, outs);
}

/// The router's weight of every expert in every row, [experts, rows]; 0 where an expert was not chosen.
std::vector<float> ObservingBackend::routing_of(const MoeProbe& probe, const Tensor& x) {
  const Tensor logits = probe.logits.slice_rows(0, x.rows);
  inner_.linear(*probe.router, x, std::array{logits});
  std::vector<float> host(static_cast<std::size_t>(x.rows * logits.columns)), weights(host.size());
  inner_.download(host.data(), logits);
  std::vector<reference::Pick> picks(static_cast<std::size_t>(probe.view.top_k));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    reference::route(probe.view,
                     std::span(host).subspan(static_cast<std::size_t>(row * logits.columns),
                                             static_cast<std::size_t>(logits.columns)),
                     picks);
    for (const reference::Pick& pick : picks)
      weights[static_cast<std::size_t>(pick.expert * x.rows + row)] = pick.weight;
  }
  return weights;
}

void ObservingBackend::moe(const Moe& moe, const Tensor& x, const Tensor& out) {
  const MoeProbe& probe = moes_.at(&moe);
  observer_({probe.view.name, x, {}});
  const std::vector<float> routing = routing_of(probe, x);
  std::size_t first = 0;
  for (const ExpertProbe& expert : probe.experts) {
    const std::int64_t width = expert.gate_up->out_features(0);
    const Tensor gate = probe.gate.slice_rows(0, x.rows).slice_columns(0, width),
                 up = probe.up.slice_rows(0, x.rows).slice_columns(0, width);
    std::span<const float> weights;
    if (expert.routed) weights = std::span(routing).subspan(first, static_cast<std::size_t>(x.rows));
    first += weights.size();
    observer_({expert.gate, x, weights});
    inner_.linear(*expert.gate_up, x, std::array{gate, up});
    inner_.gated_activation(probe.view.activation, gate, up, gate);
    observer_({expert.down, gate, weights});
  }
  inner_.moe(moe, x, out);
}

}  // namespace pergola
