#include "quantize/layer_calibration.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "quantize/observing_backend.h"

namespace pergola {

namespace {

/// Share of the mean routed weight that every row counts in every expert's Hessian.
constexpr float kUnroutedShare = 0.1f;

class Collector {
 public:
  Collector(Backend& backend, ThreadPool& pool, const std::vector<LinearTask>& tasks, float unrouted)
      : backend_(backend), pool_(pool), unrouted_(unrouted) {
    for (const LinearTask& task : tasks) hessians_.try_emplace(task.input, task.view->in_features);
  }

  void observe(const ObservedInput& input) {
    const auto at = hessians_.find(input.name);
    if (at == hessians_.end()) return;
    download(input.x);
    for (std::size_t row = 0; row < input.routing.size(); ++row) {
      const float factor = std::sqrt(input.routing[row] * input.routing[row] + unrouted_);
      float* values = rows_.data() + static_cast<std::int64_t>(row) * input.x.columns;
      std::transform(values, values + input.x.columns, values, [factor](float value) { return factor * value; });
    }
    at->second.add(rows_, input.x.rows, pool_);
  }

  std::map<std::string, Hessian> take() { return std::move(hessians_); }

 private:
  void download(const Tensor& x) {
    rows_.resize(static_cast<std::size_t>(x.rows * x.columns));
    if (x.dtype == DType::f32) return backend_.download(rows_.data(), x);
    std::vector<Half> halves(rows_.size());
    backend_.download(halves.data(), x);
    std::transform(halves.begin(), halves.end(), rows_.begin(), [](Half half) { return to_float(half); });
  }

  Backend& backend_;
  ThreadPool& pool_;
  float unrouted_;
  std::map<std::string, Hessian> hessians_;
  std::vector<float> rows_;
};

/// kUnroutedShare of the mean square of a routed weight if the router spread them evenly.
float unrouted_weight(const LayerBlueprint& layer) {
  const auto* moe = std::get_if<MoeView>(&layer.feed_forward);
  if (moe == nullptr) return 0;
  return kUnroutedShare / static_cast<float>(static_cast<std::size_t>(moe->top_k) * moe->experts.size());
}

}  // namespace

std::map<std::string, Hessian> collect_hessians(Backend& backend, const LayerBlueprint& layer,
                                                const std::vector<LinearTask>& tasks, const HiddenStates& states,
                                                ThreadPool& pool) {
  Collector collector(backend, pool, tasks, unrouted_weight(layer));
  ObservingBackend observing(backend, [&](const ObservedInput& input) { collector.observe(input); });
  HiddenStates outputs = states;
  run_layer(observing, layer, outputs);
  return collector.take();
}

}  // namespace pergola
