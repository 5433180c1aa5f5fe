#include "eval/token_bytes.h"

#include <cmath>

namespace pergola {
namespace {

std::uint64_t bytes_of(const LinearView& linear) {
  std::uint64_t bytes = linear.bias ? linear.bias->bytes.size() : 0;
  if (const TrellisView* view = linear.trellis())
    return bytes + view->trellis.size() + view->suh.size() + view->svh.size();
  return bytes + linear.dense()->bytes.size();
}

std::uint64_t bytes_of(const MoeView::Expert& expert) {
  return bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down);
}

std::uint64_t bytes_of(const AttentionBlueprint& block) {
  return bytes_of(block.q) + bytes_of(block.k) + bytes_of(block.v) + bytes_of(block.o);
}

std::uint64_t bytes_of(const DeltaNetBlueprint& block) {
  return bytes_of(block.qkv) + bytes_of(block.z) + bytes_of(block.b) + bytes_of(block.a) + bytes_of(block.out) +
         block.conv_weight.bytes.size();
}

}  // namespace

double TokenBytes::per_token(std::int64_t rows, std::int64_t depth) const {
  const auto count = static_cast<double>(rows);
  double expert_share = 0;
  if (top_k > 0) expert_share = 1 - std::pow(1 - top_k / static_cast<double>(expert_count), count);
  const double step =
      static_cast<double>(dense) + expert_share * static_cast<double>(experts) + 2 * static_cast<double>(state);
  // One pass over the cache serves all rows of a step.
  const double kv = static_cast<double>(kv_per_token) * static_cast<double>(depth + rows);
  return (step + kv + static_cast<double>(rings)) / count;
}

TokenBytes count_token_bytes(const ModelBlueprint& model, const ModelPlan& plan) {
  TokenBytes bytes;
  bytes.state = plan.state_bytes_per_slot - plan.ring_bytes_per_slot;
  bytes.rings = plan.ring_bytes_per_slot;
  bytes.kv_per_token = plan.kv_bytes_per_token;
  bytes.dense = bytes_of(model.head);
  for (const LayerBlueprint& layer : model.layers) {
    bytes.dense += std::visit([](const auto& block) { return bytes_of(block); }, layer.mixer);
    if (const auto* mlp = std::get_if<MlpBlueprint>(&layer.feed_forward)) {
      bytes.dense += bytes_of(mlp->gate) + bytes_of(mlp->up) + bytes_of(mlp->down);
      continue;
    }
    const auto& moe = std::get<MoeView>(layer.feed_forward);
    bytes.dense += bytes_of(moe.router);
    if (moe.shared) bytes.dense += bytes_of(*moe.shared);
    if (moe.shared_gate) bytes.dense += bytes_of(*moe.shared_gate);
    for (const MoeView::Expert& expert : moe.experts) bytes.experts += bytes_of(expert);
    bytes.expert_count = static_cast<std::int64_t>(moe.experts.size());
    bytes.top_k = moe.top_k;
  }
  return bytes;
}

}  // namespace pergola
