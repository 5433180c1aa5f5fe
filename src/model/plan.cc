#include "model/plan.h"

#include <algorithm>
#include <array>

#include "model/attention_block.h"
#include "model/delta_net_block.h"
#include "model/device_parameters.h"
#include "model/mlp_block.h"

namespace pergola {

namespace {

std::size_t sum_of(const std::vector<ModelPlan::Part>& parts) {
  std::size_t sum = 0;
  for (const ModelPlan::Part& part : parts) sum += part.bytes;
  return sum;
}

std::size_t norm_bytes(const NormBlueprint& norm) {
  return DeviceParameters::bytes_of(norm.weight.columns);
}

std::size_t norm_bytes(const std::optional<NormBlueprint>& norm) {
  return norm ? norm_bytes(*norm) : 0;
}

/// Adds up a blueprint part by part.
class Planner {
 public:
  explicit Planner(const Backend& backend) : backend_(backend) {}

  void add(const AttentionBlueprint& block) {
    attention_ += bind(std::array{block.q, block.k, block.v}) + bind(std::array{block.o});
    small_ += norm_bytes(block.q_norm) + norm_bytes(block.k_norm) +
              DeviceParameters::bytes_of(static_cast<std::int64_t>(block.inv_freq.size()));
    use(backend_.footprint(block.layer));
    ScratchLayout layout(backend_.max_rows());
    AttentionBlock::lay_out(block, backend_, layout);
    widest_scratch_ = std::max(widest_scratch_, layout.bytes());
    if (block.sinks) small_ += DeviceParameters::bytes_of(block.sinks->columns);
    const std::size_t token = AttentionBlock::cache_bytes(block, backend_);
    if (const std::int64_t ring = AttentionBlock::ring_rows(block.layer, backend_); ring > 0) {
      plan_.ring_bytes_per_slot += token * static_cast<std::size_t>(ring);
      plan_.state_bytes_per_slot += token * static_cast<std::size_t>(ring);
    } else {
      plan_.kv_bytes_per_token += token;
    }
  }

  void add(const DeltaNetBlueprint& block) {
    delta_net_ += bind(std::array{block.qkv, block.z, block.b, block.a}) + bind(std::array{block.out});
    small_ += norm_bytes(block.norm);
    for (const DenseView* view : {&block.conv_weight, &block.a_log, &block.dt_bias})
      small_ += DeviceParameters::bytes_of(view->rows * view->columns);
    use(backend_.footprint(block.layer));
    ScratchLayout layout(backend_.max_rows());
    DeltaNetBlock::lay_out(block, backend_, layout);
    widest_scratch_ = std::max(widest_scratch_, layout.bytes());
    plan_.state_bytes_per_slot += DeltaNetBlock::slot_bytes(block.layer);
  }

  void add(const MlpBlueprint& block) {
    mlp_ += bind(std::array{block.gate, block.up}) + bind(std::array{block.down});
    ScratchLayout layout(backend_.max_rows());
    MlpBlock::lay_out(block, backend_, layout);
    widest_scratch_ = std::max(widest_scratch_, layout.bytes());
  }

  void add(const MoeView& moe) { moe_ += use(backend_.footprint(moe)); }

  ModelPlan finish(const ModelBlueprint& model) {
    for (const LayerBlueprint& layer : model.layers) {
      small_ += norm_bytes(layer.input_norm) + norm_bytes(layer.post_norm) + norm_bytes(layer.mixer_output_norm) +
                norm_bytes(layer.feed_forward_output_norm);
      std::visit([this](const auto& block) { add(block); }, layer.mixer);
      std::visit([this](const auto& block) { add(block); }, layer.feed_forward);
    }
    small_ += norm_bytes(model.final_norm);
    part(plan_.weights, "embedding", use(backend_.footprint(model.embedding)));
    part(plan_.weights, "attention projections", attention_);
    part(plan_.weights, "delta-net projections", delta_net_);
    part(plan_.weights, "feed-forward", mlp_);
    part(plan_.weights, "experts and routers", moe_);
    part(plan_.weights, "head", bind(std::array{model.head}));
    part(plan_.weights, "norms and small weights", small_);
    const auto rows = static_cast<std::size_t>(backend_.max_rows() * model.hidden_size);
    part(plan_.work, "residual stream and norms", rows * (2 * sizeof(float) + 2 * size_of(backend_.activation_type())));
    part(plan_.work, "activations of the widest block", widest_scratch_);
    part(plan_.work, "work space of the backend", backend_work_);
    return plan_;
  }

 private:
  std::size_t use(const Footprint& footprint) {
    backend_work_ = std::max(backend_work_, footprint.work);
    return footprint.weights;
  }

  std::size_t bind(std::span<const LinearView> members) { return use(backend_.footprint(members)); }

  static void part(std::vector<ModelPlan::Part>& parts, std::string_view name, std::size_t bytes) {
    if (bytes > 0) parts.push_back({std::string(name), bytes});
  }

  const Backend& backend_;
  ModelPlan plan_;
  std::size_t attention_ = 0;
  std::size_t delta_net_ = 0;
  std::size_t mlp_ = 0;
  std::size_t moe_ = 0;
  std::size_t small_ = 0;
  std::size_t widest_scratch_ = 0;
  std::size_t backend_work_ = 0;
};

}  // namespace

std::size_t ModelPlan::weight_bytes() const {
  return sum_of(weights);
}

std::size_t ModelPlan::work_bytes() const {
  return sum_of(work);
}

std::size_t ModelPlan::cache_bytes(const CachePlan& caches) const {
  return static_cast<std::size_t>(caches.pages * caches.page_size) * kv_bytes_per_token +
         static_cast<std::size_t>(caches.slots) * state_bytes_per_slot;
}

ModelPlan plan_model(const ModelBlueprint& blueprint, const Backend& backend) {
  return Planner(backend).finish(blueprint);
}

}  // namespace pergola
