#include "model/qwen3_5.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "model/qwen3_5_config.h"

namespace pergola {

namespace {

/// Turns tensor names into the parts of a blueprint.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, bool mixture_of_experts)
      : checkpoint_(checkpoint),
        config_(read_qwen3_5_config(checkpoint.config(), mixture_of_experts)),
        prefix_(find_prefix(checkpoint)) {}

  ModelBlueprint read() const {
    ModelBlueprint model;
    model.vocab_size = config_.vocab;
    model.hidden_size = config_.hidden;
    model.max_positions = config_.max_positions;
    model.embedding = checkpoint_.dense(prefix_ + "embed_tokens.weight", {config_.vocab, config_.hidden});
    for (std::size_t i = 0; i < config_.full_attention.size(); ++i) model.layers.push_back(read_layer(i));
    model.final_norm = norm(prefix_ + "norm.weight", config_.hidden, true);
    model.head = read_head();
    return model;
  }

 private:
  /// Published, text-only and MLX-style names.
  static std::string find_prefix(const Checkpoint& checkpoint) {
    constexpr std::array kPrefixes = {"model.language_model.", "model.", "language_model.model."};
    for (const char* prefix : kPrefixes) {
      if (checkpoint.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
    }
    fail({.file = checkpoint.folder().string(), .tensor = "model.language_model.embed_tokens.weight"},
         "the embedding table is missing, under this name and under 'model.embed_tokens.weight'");
  }

  NormBlueprint norm(const std::string& name, std::int64_t width, bool zero_centred) const {
    return {checkpoint_.dense(name, {width}), config_.eps, zero_centred};
  }

  LayerBlueprint read_layer(std::size_t index) const {
    const std::string key = fmt::format("{}layers.{}.", prefix_, index);
    LayerBlueprint layer{norm(key + "input_layernorm.weight", config_.hidden, true),
                         norm(key + "post_attention_layernorm.weight", config_.hidden, true),
                         {},
                         {}};
    if (config_.full_attention[index]) {
      layer.mixer = read_attention(key + "self_attn.");
    } else {
      layer.mixer = read_delta_net(key + "linear_attn.");
    }
    if (config_.experts > 0) {
      layer.feed_forward = read_moe(key + "mlp.");
    } else {
      const MoeView::Expert mlp = read_expert(key + "mlp.", config_.intermediate);
      layer.feed_forward = MlpBlueprint{key + "mlp", Activation::silu, mlp.gate, mlp.up, mlp.down};
    }
    return layer;
  }

  LinearView attention_linear(const std::string& key, std::int64_t in, std::int64_t out) const {
    LinearView linear = checkpoint_.linear(key, in, out);
    if (linear.bias.has_value() != config_.attention_bias) {
      checkpoint_.config().text().reject("attention_bias", "this is {}, but '{}' has {} bias", config_.attention_bias,
                                         key, linear.bias ? "a" : "no");
    }
    return linear;
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
    block.q_norm = norm(key + "q_norm.weight", config_.head_dim, true);
    block.k_norm = norm(key + "k_norm.weight", config_.head_dim, true);
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
    block.norm = norm(key + "norm.weight", config_.value_dim, false);
    block.conv_weight = checkpoint_.dense(key + "conv1d.weight", {channels, 1, config_.conv_kernel});
    block.a_log = checkpoint_.dense(key + "A_log", {config_.value_heads});
    block.dt_bias = checkpoint_.dense(key + "dt_bias", {config_.value_heads});
    block.qkv = checkpoint_.linear(key + "in_proj_qkv", config_.hidden, channels);
    block.z = checkpoint_.linear(key + "in_proj_z", config_.hidden, value_width);
    block.b = checkpoint_.linear(key + "in_proj_b", config_.hidden, config_.value_heads);
    block.a = checkpoint_.linear(key + "in_proj_a", config_.hidden, config_.value_heads);
    block.out = checkpoint_.linear(key + "out_proj", value_width, config_.hidden);
    return block;
  }

  MoeView::Expert read_expert(const std::string& key, std::int64_t width) const {
    return {checkpoint_.linear(key + "gate_proj", config_.hidden, width),
            checkpoint_.linear(key + "up_proj", config_.hidden, width),
            checkpoint_.linear(key + "down_proj", width, config_.hidden)};
  }

  MoeView::Expert read_fused_expert(const std::string& key, std::int64_t expert) const {
    const std::int64_t width = config_.expert_intermediate;
    const std::string gate_up = key + "gate_up_proj";
    return {checkpoint_.fused_expert(gate_up, expert, 0, width, config_.hidden),
            checkpoint_.fused_expert(gate_up, expert, width, width, config_.hidden),
            checkpoint_.fused_expert(key + "down_proj", expert, 0, config_.hidden, width)};
  }

  /// A fused tensor must have exactly the experts and rows that the configuration says: views of a part would hide a
  /// mismatch.
  void check_fused(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    checkpoint_.dense(name, {config_.experts, rows, columns});
  }

  /// Routers and gates, which are never quantised.
  LinearView dense_linear(const std::string& key, std::int64_t out) const {
    return {key, config_.hidden, out, checkpoint_.dense(key + ".weight", {out, config_.hidden}), {}};
  }

  MoeView read_moe(const std::string& key) const {
    MoeView moe;
    moe.name = key.substr(0, key.size() - 1);
    moe.hidden = config_.hidden;
    moe.top_k = config_.top_k;
    moe.router = dense_linear(key + "gate", config_.experts);
    const bool fused = checkpoint_.find(key + "experts.gate_up_proj") != nullptr;
    if (fused) {
      check_fused(key + "experts.gate_up_proj", 2 * config_.expert_intermediate, config_.hidden);
      check_fused(key + "experts.down_proj", config_.hidden, config_.expert_intermediate);
    }
    for (std::int64_t e = 0; e < config_.experts; ++e) {
      moe.experts.push_back(fused ? read_fused_expert(key + "experts.", e)
                                  : read_expert(fmt::format("{}experts.{}.", key, e), config_.expert_intermediate));
    }
    moe.shared = read_expert(key + "shared_expert.", config_.shared_intermediate);
    moe.shared_gate = dense_linear(key + "shared_expert_gate", 1);
    return moe;
  }

  /// A head of its own wins over `tie_word_embeddings`: converted models keep the flag but store a quantised head.
  LinearView read_head() const {
    for (const char* key : {"lm_head", "language_model.lm_head"}) {
      if (checkpoint_.has_linear(key)) return checkpoint_.linear(key, config_.hidden, config_.vocab);
    }
    if (!config_.tied_head) {
      fail({.file = checkpoint_.folder().string(), .tensor = "lm_head.weight"},
           "the head is missing and the configuration does not tie it to the embedding");
    }
    return {"lm_head (tied)",
            config_.hidden,
            config_.vocab,
            checkpoint_.dense(prefix_ + "embed_tokens.weight", {config_.vocab, config_.hidden}),
            {}};
  }

  const Checkpoint& checkpoint_;
  Qwen35Config config_;
  std::string prefix_;
};

}  // namespace

ModelBlueprint read_qwen3_5(const Checkpoint& checkpoint) {
  return Reader(checkpoint, false).read();
}

ModelBlueprint read_qwen3_5_moe(const Checkpoint& checkpoint) {
  return Reader(checkpoint, true).read();
}

}  // namespace pergola
