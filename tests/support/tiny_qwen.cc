#include "support/tiny_qwen.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "base/half.h"
#include "support/checkpoint_writer.h"

namespace pergola::testing {

namespace {

/// Writes the tensors of a TinyQwen, in the order of a checkpoint.
class TinyWriter {
 public:
  explicit TinyWriter(const TinyQwen& model) : model_(model), random_(model.seed) {}

  std::string file() {
    const TinyQwen& m = model_;
    add(m.prefix + "embed_tokens.weight", {m.vocab, m.hidden}, 1.0);
    for (std::size_t i = 0; i < m.full_attention.size(); ++i)
      add_layer(fmt::format("{}layers.{}.", m.prefix, i), m.full_attention[i]);
    add(m.prefix + "norm.weight", {m.hidden}, 0.2);
    if (!m.tied) linear("lm_head", m.hidden, m.vocab);
    if (m.extras) {
      add("model.visual.patch_embed.proj.weight", {8, 3, 2, 4, 4}, 1.0);
      add("mtp.fc.weight", {m.hidden, 2 * m.hidden}, 1.0);
    }
    return writer_.file();
  }

 private:
  /// A dense tensor of normal values: f32, or bf16 in a bf16 or EXL3 model.
  void add(const std::string& name, std::vector<std::int64_t> shape, double deviation, double mean = 0) {
    std::int64_t count = 1;
    for (const std::int64_t side : shape) count *= side;
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(normal(random_));
    if (model_.weights == TinyQwen::Weights::f32) {
      writer_.add_floats(name, std::move(shape), values);
      return;
    }
    std::vector<BFloat16> rounded;
    for (const float value : values) rounded.push_back(to_bfloat16(value));
    writer_.add(name, DType::bf16, std::move(shape), bytes_of(rounded));
  }

  void dense(const std::string& key, std::int64_t in, std::int64_t out) {
    add(key + ".weight", {out, in}, 1 / std::sqrt(static_cast<double>(in)));
  }

  /// A linear in the model's format. EXL3: K and codebook change from one to the next, widths are padded.
  void linear(const std::string& key, std::int64_t in, std::int64_t out) {
    if (model_.weights != TinyQwen::Weights::exl3) return dense(key, in, out);
    const auto padded = [](std::int64_t width) { return (width + 127) / 128 * 128; };
    const int n = linears_++;
    writer_.add_trellis(key, padded(in), padded(out), 3 + n % 6, static_cast<Codebook>(n % 3),
                        static_cast<std::uint32_t>(n));
  }

  void add_layer(const std::string& key, bool full_attention) {
    add(key + "input_layernorm.weight", {model_.hidden}, 0.2);
    if (full_attention) {
      add_attention(key + "self_attn.");
    } else {
      add_delta_net(key + "linear_attn.");
    }
    add(key + "post_attention_layernorm.weight", {model_.hidden}, 0.2);
    if (model_.experts > 0) {
      add_moe(key + "mlp.");
    } else {
      add_mlp(key + "mlp.");
    }
  }

  void add_attention(const std::string& key) {
    const TinyQwen& m = model_;
    linear(key + "q_proj", m.hidden, 2 * m.heads * m.head_dim);
    linear(key + "k_proj", m.hidden, m.kv_heads * m.head_dim);
    linear(key + "v_proj", m.hidden, m.kv_heads * m.head_dim);
    linear(key + "o_proj", m.heads * m.head_dim, m.hidden);
    add(key + "q_norm.weight", {m.head_dim}, 0.2, 0.5);
    add(key + "k_norm.weight", {m.head_dim}, 0.2, 0.5);
  }

  void add_delta_net(const std::string& key) {
    const TinyQwen& m = model_;
    linear(key + "in_proj_qkv", m.hidden, m.channels());
    linear(key + "in_proj_z", m.hidden, m.value_heads * m.value_dim);
    dense(key + "in_proj_b", m.hidden, m.value_heads);
    dense(key + "in_proj_a", m.hidden, m.value_heads);
    add(key + "conv1d.weight", {m.channels(), 1, m.conv_kernel}, 0.5);
    add(key + "A_log", {m.value_heads}, 1.0, 0.5);
    add(key + "dt_bias", {m.value_heads}, 1.0, -2.0);
    add(key + "norm.weight", {m.value_dim}, 0.2, 1.0);
    linear(key + "out_proj", m.value_heads * m.value_dim, m.hidden);
  }

  void add_mlp(const std::string& key) {
    linear(key + "gate_proj", model_.hidden, model_.intermediate);
    linear(key + "up_proj", model_.hidden, model_.intermediate);
    linear(key + "down_proj", model_.intermediate, model_.hidden);
  }

  void add_moe(const std::string& key) {
    const TinyQwen& m = model_;
    dense(key + "gate", m.hidden, m.experts);
    dense(key + "shared_expert_gate", m.hidden, 1);
    add_mlp(key + "shared_expert.");
    if (m.fused_experts) {
      add(key + "experts.gate_up_proj", {m.experts, 2 * m.intermediate, m.hidden},
          1 / std::sqrt(static_cast<double>(m.hidden)));
      add(key + "experts.down_proj", {m.experts, m.hidden, m.intermediate},
          1 / std::sqrt(static_cast<double>(m.intermediate)));
      return;
    }
    for (std::int64_t e = 0; e < m.experts; ++e) add_mlp(fmt::format("{}experts.{}.", key, e));
  }

  const TinyQwen& model_;
  std::mt19937 random_;
  TensorWriter writer_;
  int linears_ = 0;
};

}  // namespace

std::string TinyQwen::architecture() const {
  return fmt::format("Qwen3_5{}For{}", experts > 0 ? "Moe" : "", nested ? "ConditionalGeneration" : "CausalLM");
}

nlohmann::json TinyQwen::config() const {
  nlohmann::json text;
  text["hidden_size"] = hidden;
  text["vocab_size"] = vocab;
  text["num_hidden_layers"] = full_attention.size();
  for (const bool full : full_attention) text["layer_types"].push_back(full ? "full_attention" : "linear_attention");
  text["num_attention_heads"] = heads;
  text["num_key_value_heads"] = kv_heads;
  text["head_dim"] = head_dim;
  text["hidden_act"] = "silu";
  text["rms_norm_eps"] = eps;
  text["max_position_embeddings"] = 4096;
  text["rope_parameters"] = {{"rope_type", "default"},
                             {"rope_theta", rope_theta},
                             {"partial_rotary_factor", partial_rotary},
                             {"mrope_section", {1, 2, 3}},
                             {"mrope_interleaved", true}};
  text["linear_num_key_heads"] = key_heads;
  text["linear_num_value_heads"] = value_heads;
  text["linear_key_head_dim"] = key_dim;
  text["linear_value_head_dim"] = value_dim;
  text["linear_conv_kernel_dim"] = conv_kernel;
  text["mtp_num_hidden_layers"] = 1;
  if (experts > 0) {
    text["num_experts"] = experts;
    text["num_experts_per_tok"] = top_k;
    text["moe_intermediate_size"] = intermediate;
    text["shared_expert_intermediate_size"] = intermediate;
  } else {
    text["intermediate_size"] = intermediate;
  }
  nlohmann::json config = nested ? nlohmann::json{{"text_config", text}, {"vision_config", {{"depth", 1}}}} : text;
  config["architectures"] = {architecture()};
  config["tie_word_embeddings"] = tied;
  return config;
}

void TinyQwen::write(const std::filesystem::path& folder) const {
  write_text(folder / "config.json", config().dump(1));
  write_text(folder / "model.safetensors", TinyWriter(*this).file());
}

}  // namespace pergola::testing
