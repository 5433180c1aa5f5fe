#include "model/layer.h"

#include "model/attention_block.h"
#include "model/delta_net_block.h"
#include "model/mlp_block.h"
#include "model/moe_block.h"

namespace pergola {

namespace {

std::unique_ptr<Mixer> make_block(const AttentionBlueprint& blueprint, const BlockContext& context) {
  return std::make_unique<AttentionBlock>(blueprint, context);
}

std::unique_ptr<Mixer> make_block(const DeltaNetBlueprint& blueprint, const BlockContext& context) {
  return std::make_unique<DeltaNetBlock>(blueprint, context);
}

std::unique_ptr<FeedForward> make_block(const MlpBlueprint& blueprint, const BlockContext& context) {
  return std::make_unique<MlpBlock>(blueprint, context);
}

std::unique_ptr<FeedForward> make_block(const MoeView& view, const BlockContext& context) {
  return std::make_unique<MoeBlock>(view, context);
}

}  // namespace

Layer::Layer(const LayerBlueprint& blueprint, const BlockContext& context)
    : input_norm(context.parameters.add(blueprint.input_norm, "a norm")),
      post_norm(context.parameters.add(blueprint.post_norm, "a norm")),
      mixer(std::visit([&](const auto& block) { return make_block(block, context); }, blueprint.mixer)),
      feed_forward(std::visit([&](const auto& block) { return make_block(block, context); }, blueprint.feed_forward)) {
  const auto bind = [&](const std::optional<NormBlueprint>& norm, std::optional<RmsNorm>& bound) {
    if (norm) bound = context.parameters.add(*norm, "a norm");
  };
  bind(blueprint.mixer_output_norm, mixer_output_norm);
  bind(blueprint.feed_forward_output_norm, feed_forward_output_norm);
}

}  // namespace pergola
