#include "quantize/importance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <variant>

#include "model/qwen3_5.h"
#include "quantize/layer_calibration.h"
#include "quantize/layer_runner.h"
#include "quantize/linear_encoding.h"
#include "quantize/linear_tasks.h"
#include "trellis/tile.h"

namespace pergola {

namespace {

constexpr std::int64_t kProbeTokens = 1024;

double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit} - double{largest});
  return std::log(sum) + double{largest};
}

/// KL(p || q) in nats of two rows of logits.
double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_norm = log_sum_exp(p, *std::max_element(p.begin(), p.end())),
               q_norm = log_sum_exp(q, *std::max_element(q.begin(), q.end()));
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_norm;
    sum += std::exp(log_p) * (log_p - (double{q[i]} - q_norm));
  }
  return sum;
}

class Meter {
 public:
  Meter(const Checkpoint& source, ModelBlueprint model, const CalibrationTokens& calibration,
        const QuantizeOptions& options, Backend& backend, ThreadPool& pool, const Progress& progress,
        TileBatchEncoder* tiles)
      : source_(source),
        model_(std::move(model)),
        calibration_(calibration),
        options_(options),
        backend_(backend),
        pool_(pool),
        progress_(progress),
        quantizer_(pool, tiles),
        bits_(std::clamp(static_cast<int>(options.bits), kMinBits, kMaxBits - 1)) {}

  std::vector<GroupCost> run() {
    run_source();
    HiddenStates states = embed_tokens(model_, calibration_.tokens, calibration_.length);
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
      measure_layer(layer, states);
      run_layer(backend_, model_.layers[layer], states);
      if (progress_) progress_("measuring", layer + 1, model_.layers.size());
    }
    return std::move(costs_);
  }

 private:
  /// The inputs of every layer and the logits, as the source has them, over the probe: the first text rows.
  void run_source() {
    const std::int64_t rows =
        std::min(calibration_.sequences(), (kProbeTokens + calibration_.length - 1) / calibration_.length);
    const auto tokens = std::span(calibration_.tokens).first(static_cast<std::size_t>(rows * calibration_.length));
    HiddenStates states = embed_tokens(model_, tokens, calibration_.length);
    for (const LayerBlueprint& layer : model_.layers) {
      inputs_.push_back(states);
      run_layer(backend_, layer, states);
    }
    reference_ = run_head(backend_, model_, states);
  }

  void measure_layer(std::size_t index, const HiddenStates& states) {
    LayerBlueprint& layer = model_.layers[index];
    const std::vector<LinearTask> tasks = linear_tasks(layer);
    const std::map<std::string, Hessian> hessians = collect_hessians(backend_, layer, tasks, states, pool_);
    const std::size_t first = costs_.size();
    for (int step = 0; step < 2; ++step) {
      std::vector<QuantizedLinear> encoded;
      for (const LinearTask& task : tasks) {
        encoded.push_back(
            encode_linear(quantizer_, task.key, *task.view, bits_ + step, options_, &hessians.at(task.input)));
      }
      std::size_t group = first;
      for (std::size_t begin = 0; begin < tasks.size();) {
        const std::vector<std::size_t> members = members_of(tasks, tasks[begin].group);
        if (members.front() != begin) {  // measured with its first linear
          ++begin;
          continue;
        }
        if (step == 0) costs_.push_back({tasks[begin].group, weights_of(tasks, members), bits_, {}});
        costs_[group++].kl[step] = cost_of(index, tasks, members, encoded);
        ++begin;
      }
    }
  }

  static std::vector<std::size_t> members_of(const std::vector<LinearTask>& tasks, const std::string& group) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].group == group) members.push_back(i);
    }
    return members;
  }

  static std::int64_t weights_of(const std::vector<LinearTask>& tasks, const std::vector<std::size_t>& members) {
    std::int64_t weights = 0;
    for (std::size_t i : members) weights += tasks[i].view->in_features * tasks[i].view->out_features;
    return weights;
  }

  /// The mean KL with these linears of one layer encoded.
  double cost_of(std::size_t index, const std::vector<LinearTask>& tasks, const std::vector<std::size_t>& members,
                 const std::vector<QuantizedLinear>& encoded) {
    const LayerBlueprint kept = model_.layers[index];
    for (std::size_t i : members) tasks[i].view->weight = encoded[i].view();
    std::optional<Checkpoint> splits;  // owns parts of these very linears
    auto* net = std::get_if<DeltaNetBlueprint>(&model_.layers[index].mixer);
    if (net != nullptr && net->qkvz) split_qkvz(splits.emplace(source_.folder()), *net);
    HiddenStates states = inputs_[index];
    for (std::size_t layer = index; layer < model_.layers.size(); ++layer)
      run_layer(backend_, model_.layers[layer], states);
    model_.layers[index] = kept;

    const std::vector<float> logits = run_head(backend_, model_, states);
    const auto width = static_cast<std::size_t>(model_.vocab_size);
    double sum = 0;
    for (std::size_t at = 0; at < logits.size(); at += width)
      sum += divergence(std::span(reference_).subspan(at, width), std::span(logits).subspan(at, width));
    return sum * static_cast<double>(width) / static_cast<double>(logits.size());
  }

  const Checkpoint& source_;
  ModelBlueprint model_;
  const CalibrationTokens& calibration_;
  const QuantizeOptions& options_;
  Backend& backend_;
  ThreadPool& pool_;
  const Progress& progress_;
  LinearQuantizer quantizer_;
  int bits_;
  std::vector<HiddenStates> inputs_;
  std::vector<float> reference_;
  std::vector<GroupCost> costs_;
};

}  // namespace

double GroupCost::importance() const {
  constexpr double kLeast = 1e-12;  // rounding can make a cost negative
  const double low = std::max(kl[0], kLeast) * std::ldexp(1.0, 2 * bits),
               high = std::max(kl[1], kLeast) * std::ldexp(1.0, 2 * bits + 2);
  return std::sqrt(low * high) / static_cast<double>(weights);
}

std::vector<GroupCost> measure_importance(const Checkpoint& source, ModelBlueprint model,
                                          const CalibrationTokens& calibration, const QuantizeOptions& options,
                                          Backend& backend, ThreadPool& pool, const Progress& progress,
                                          TileBatchEncoder* tiles) {
  return Meter(source, std::move(model), calibration, options, backend, pool, progress, tiles).run();
}

}  // namespace pergola
