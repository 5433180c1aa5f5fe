#include "model/qwen3_5.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "model/qwen3_5_config.h"
#include "model/weight_reader.h"

namespace pergola {

namespace {

/// Turns tensor names into the parts of a blueprint.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, bool mixture_of_experts)
      : checkpoint_(checkpoint),
        config_(read_qwen3_5_config(checkpoint.config(), mixture_of_experts)),
        weights_(checkpoint, config_.hidden) {}

  ModelBlueprint read() const {
    ModelBlueprint model;
    model.vocab_size = config_.vocab;
    model.hidden_size = config_.hidden;
    model.max_positions = config_.max_positions;
    model.embedding = weights_.embedding(config_.vocab);
    for (std::size_t i = 0; i < config_.full_attention.size(); ++i) model.layers.push_back(read_layer(i));
    model.final_norm = norm(weights_.prefix() + "norm", config_.hidden, true);
    model.head = weights_.head(config_.vocab, config_.tied_head);
    return model;
  }

 private:
  NormBlueprint norm(const std::string& key, std::int64_t width, bool zero_centred) const {
    return weights_.norm(key, width, config_.eps, zero_centred);
  }

  LayerBlueprint read_layer(std::size_t index) const {
    const std::string key = fmt::format("{}layers.{}.", weights_.prefix(), index);
    LayerBlueprint layer;
    layer.input_norm = norm(key + "input_layernorm", config_.hidden, true);
    layer.post_norm = norm(key + "post_attention_layernorm", config_.hidden, true);
    if (config_.full_attention[index]) {
      layer.mixer = read_attention(key + "self_attn.");
    } else {
      layer.mixer = read_delta_net(key + "linear_attn.");
    }
    if (config_.experts > 0) {
      layer.feed_forward = read_moe(key + "mlp.");
    } else {
      const MoeView::Expert mlp = weights_.expert(key + "mlp.", kGateUpDown, {}, config_.intermediate, false);
      layer.feed_forward = MlpBlueprint{key + "mlp", Activation::silu, mlp.gate, mlp.up, mlp.down};
    }
    return layer;
  }

  LinearView attention_linear(const std::string& key, std::int64_t in, std::int64_t out) const {
    return weights_.linear(key, in, out, config_.attention_bias);
  }

  AttentionBlueprint read_attention(const std::string& key) const {
    const std::int64_t query_width = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_width = std::int64_t{config_.kv_heads} * config_.head_dim;
    AttentionBlueprint block;
    block.name = key.substr(0, key.size() - 1);
    block.layer.heads = config_.heads;
    block.layer.kv_heads = config_.kv_heads;
    block.layer.head_dim = config_.head_dim;
    block.layer.gated = true;
    block.layer.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    block.layer.rope.dims = config_.rope.dims;
    block.layer.rope.magnitude = config_.rope.magnitude;
    block.inv_freq = config_.rope.inv_freq;
    block.q_norm = norm(key + "q_norm", config_.head_dim, true);
    block.k_norm = norm(key + "k_norm", config_.head_dim, true);
    block.q = attention_linear(key + "q_proj", config_.hidden, 2 * query_width);
    block.k = attention_linear(key + "k_proj", config_.hidden, kv_width);
    block.v = attention_linear(key + "v_proj", config_.hidden, kv_width);
    block.o = attention_linear(key + "o_proj", query_width, config_.hidden);
    return block;
  }

  DeltaNetBlueprint read_delta_net(const std::string& key) const {
    DeltaNetBlueprint block;
    block.name = key.substr(0, key.size() - 1);
    block.layer.key_heads = config_.key_heads;
    block.layer.value_heads = config_.value_heads;
    block.layer.key_dim = config_.key_dim;
    block.layer.value_dim = config_.value_dim;
    block.layer.kernel = config_.conv_kernel;
    const std::int64_t channels = block.layer.channels();
    const std::int64_t value_width = std::int64_t{config_.value_heads} * config_.value_dim;
    block.norm = norm(key + "norm", config_.value_dim, false);
    block.conv_weight = checkpoint_.dense(key + "conv1d.weight", {channels, 1, config_.conv_kernel});
    block.a_log = checkpoint_.dense(key + "A_log", {config_.value_heads});
    block.dt_bias = checkpoint_.dense(key + "dt_bias", {config_.value_heads});
    if (checkpoint_.has_linear(key + "in_proj_qkvz")) {
      read_fused_projections(key, block);
    } else {
      block.qkv = checkpoint_.linear(key + "in_proj_qkv", config_.hidden, channels);
      block.z = checkpoint_.linear(key + "in_proj_z", config_.hidden, value_width);
      block.b = checkpoint_.linear(key + "in_proj_b", config_.hidden, config_.value_heads);
      block.a = checkpoint_.linear(key + "in_proj_a", config_.hidden, config_.value_heads);
    }
    block.out = checkpoint_.linear(key + "out_proj", value_width, config_.hidden);
    return block;
  }

  /// Qwen3-Next fuses projections: in_proj_qkvz (split_qkvz), and in_proj_ba with b and a of each key head's value
  /// heads.
  void read_fused_projections(const std::string& key, DeltaNetBlueprint& block) const {
    const std::int64_t ratio = config_.value_heads / config_.key_heads;
    std::vector<Checkpoint::OutputRange> b, a;
    for (int head = 0; head < config_.key_heads; ++head) {
      b.push_back({head * 2 * ratio, ratio});
      a.push_back({head * 2 * ratio + ratio, ratio});
    }
    const LinearView ba = checkpoint_.linear(key + "in_proj_ba", config_.hidden, 2 * config_.value_heads);
    block.qkvz = checkpoint_.linear(key + "in_proj_qkvz", config_.hidden,
                                    block.layer.channels() + std::int64_t{config_.value_heads} * config_.value_dim);
    split_qkvz(checkpoint_, block);
    block.b = checkpoint_.select_outputs(ba, b);
    block.a = checkpoint_.select_outputs(ba, a);
  }

  MoeView read_moe(const std::string& key) const {
    MoeView moe;
    moe.name = key.substr(0, key.size() - 1);
    moe.hidden = config_.hidden;
    moe.top_k = config_.top_k;
    moe.router = weights_.dense_linear(key + "gate", config_.experts);
    moe.experts = weights_.experts(key + "experts.", kGateUpDown, config_.experts, config_.expert_intermediate, false);
    moe.shared = weights_.expert(key + "shared_expert.", kGateUpDown, {}, config_.shared_intermediate, false);
    moe.shared_gate = weights_.dense_linear(key + "shared_expert_gate", 1);
    return moe;
  }

  const Checkpoint& checkpoint_;
  Qwen35Config config_;
  WeightReader weights_;
};

}  // namespace

void split_qkvz(const Checkpoint& checkpoint, DeltaNetBlueprint& block) {
  using Range = Checkpoint::OutputRange;
  const DeltaNet& layer = block.layer;
  const std::int64_t k = layer.key_dim;
  const std::int64_t v = layer.value_heads / layer.key_heads * std::int64_t{layer.value_dim};
  std::vector<Range> qkv, z;
  for (const std::int64_t part : {std::int64_t{0}, k}) {
    for (int head = 0; head < layer.key_heads; ++head) qkv.push_back({head * 2 * (k + v) + part, k});
  }
  for (int head = 0; head < layer.key_heads; ++head) {
    qkv.push_back({head * 2 * (k + v) + 2 * k, v});
    z.push_back({head * 2 * (k + v) + 2 * k + v, v});
  }
  block.qkv = checkpoint.select_outputs(*block.qkvz, qkv);
  block.z = checkpoint.select_outputs(*block.qkvz, z);
}

ModelBlueprint read_qwen3_5(const Checkpoint& checkpoint) {
  return Reader(checkpoint, false).read();
}

ModelBlueprint read_qwen3_5_moe(const Checkpoint& checkpoint) {
  return Reader(checkpoint, true).read();
}

}  // namespace pergola
