#include "quantize/observing_backend.h"

#include <array>
#include <cassert>

namespace pergola {

std::unique_ptr<LinearGroup> ObservingBackend::bind_linears(std::span<const LinearView> members) {
  std::unique_ptr<LinearGroup> group = inner_.bind_linears(members);
  groups_[group.get()] = members.front().name;
  return group;
}

std::unique_ptr<Moe> ObservingBackend::bind_moe(const MoeView& view) {
  std::unique_ptr<Moe> bound = inner_.bind_moe(view);
  MoeProbe probe;
  probe.name = view.name;
  probe.activation = view.activation;
  std::int64_t width = 0;
  const auto add = [&](const MoeView::Expert& expert) {
    probe.experts.push_back({expert.down.name, inner_.bind_linears(std::array{expert.gate, expert.up})});
    width = std::max(width, expert.gate.out_features);
  };
  for (const MoeView::Expert& expert : view.experts) add(expert);
  if (view.shared) add(*view.shared);
  const std::int64_t rows = inner_.max_rows();
  const DType type = inner_.activation_type();
  const std::size_t half = static_cast<std::size_t>(rows * width) * size_of(type);
  probe.buffer = inner_.allocate(2 * half, "calibration of experts");
  probe.gate = {probe.buffer.get(), 0, type, rows, width, width};
  probe.up = {probe.buffer.get(), static_cast<std::int64_t>(half), type, rows, width, width};
  moes_[bound.get()] = std::move(probe);
  return bound;
}

void ObservingBackend::linear(const LinearGroup& group, const Tensor& x, std::span<const Tensor> outs) {
  observer_(groups_.at(&group), x);
  inner_.linear(group, x, outs);
}

void ObservingBackend::moe(const Moe& moe, const Tensor& x, const Tensor& out) {
  const MoeProbe& probe = moes_.at(&moe);
  observer_(probe.name, x);
  for (const ExpertProbe& expert : probe.experts) {
    const std::int64_t width = expert.gate_up->out_features(0);
    const Tensor gate = probe.gate.slice_rows(0, x.rows).slice_columns(0, width),
                 up = probe.up.slice_rows(0, x.rows).slice_columns(0, width);
    inner_.linear(*expert.gate_up, x, std::array{gate, up});
    inner_.gated_activation(probe.activation, gate, up, gate);
    observer_(expert.down, gate);
  }
  inner_.moe(moe, x, out);
}

}  // namespace pergola
