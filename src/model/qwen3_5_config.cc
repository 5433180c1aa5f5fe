#include "model/qwen3_5_config.h"

#include <algorithm>

#include "model/text_config.h"

namespace pergola {

namespace {

int small_int(const Config& text, std::string_view field) {
  return static_cast<int>(text.require_int(field, 1, kMaxCount));
}

int small_int(const Config& text, std::string_view field, std::int64_t absent) {
  return static_cast<int>(text.get_int(field, absent, 1, kMaxCount));
}

std::vector<bool> read_layer_types(const Config& text) {
  const std::int64_t layers = text.require_int("num_hidden_layers", 1, kMaxCount);
  std::vector<bool> full;
  if (!text.has("layer_types")) {
    const std::int64_t interval = text.get_int("full_attention_interval", 4, 1, kMaxCount);
    for (std::int64_t i = 0; i < layers; ++i) full.push_back((i + 1) % interval == 0);
    return full;
  }
  for (const std::string& type : text.get_string_list("layer_types")) {
    if (type != "full_attention" && type != "linear_attention")
      text.reject("layer_types", "the layer type '{}' is not supported", type);
    full.push_back(type == "full_attention");
  }
  if (static_cast<std::int64_t>(full.size()) != layers) {
    text.reject("layer_types", "there are {} layer types for {} layers", full.size(), layers);
  }
  return full;
}

void read_attention(const Config& text, Qwen35Config& result) {
  result.heads = small_int(text, "num_attention_heads");
  result.kv_heads = small_int(text, "num_key_value_heads");
  text.check_divides("num_attention_heads", result.heads, result.kv_heads, "num_key_value_heads");
  result.head_dim = small_int(text, "head_dim");
  result.attention_bias = text.get_bool("attention_bias", false);
  if (!text.get_bool("attn_output_gate", true))
    text.reject("attn_output_gate", "attention without an output gate is not supported in this family");
  if (text.get_bool("use_sliding_window", false))
    text.reject("use_sliding_window", "sliding-window attention is not supported in this family");
  result.rope = read_rope(text, result.head_dim, {.partial_factor = 0.25});
}

void read_delta_net(const Config& text, Qwen35Config& result) {
  result.key_heads = small_int(text, "linear_num_key_heads", 16);
  result.value_heads = small_int(text, "linear_num_value_heads", 32);
  text.check_divides("linear_num_value_heads", result.value_heads, result.key_heads, "linear_num_key_heads");
  result.key_dim = small_int(text, "linear_key_head_dim", 128);
  result.value_dim = small_int(text, "linear_value_head_dim", 128);
  result.conv_kernel = static_cast<int>(text.get_int("linear_conv_kernel_dim", 4, 2, 64));
  const std::string gate = text.get_string("output_gate_type", "swish");
  if (gate != "swish" && gate != "silu")
    text.reject("output_gate_type", "the gate activation '{}' is not supported; 'swish' is", gate);
}

void read_moe(const Config& text, Qwen35Config& result) {
  result.experts = text.require_int("num_experts", 1, kMaxCount);
  result.top_k = static_cast<int>(text.require_int("num_experts_per_tok", 1, result.experts));
  result.expert_intermediate = text.require_int("moe_intermediate_size", 1, kMaxWidth);
  result.shared_intermediate = text.require_int("shared_expert_intermediate_size", 1, kMaxWidth);
  if (!text.get_bool("norm_topk_prob", true))
    text.reject("norm_topk_prob", "routing without renormalised weights is not supported in this family");
  if (text.get_int("decoder_sparse_step", 1, 0, kMaxCount) != 1)
    text.reject("decoder_sparse_step", "layers without experts are not supported in a mixture-of-experts model");
  if (!text.get_int_list("mlp_only_layers", 0, kMaxCount).empty())
    text.reject("mlp_only_layers", "layers without experts are not supported in a mixture-of-experts model");
}

}  // namespace

Qwen35Config read_qwen3_5_config(const Config& config, bool mixture_of_experts) {
  const Config text = config.text();
  Qwen35Config result;
  result.hidden = text.require_int("hidden_size", 1, kMaxWidth);
  result.vocab = text.require_int("vocab_size", 1, kMaxVocab);
  result.max_positions = text.get_int("max_position_embeddings", 262144, 1, kMaxPositions);
  result.eps = static_cast<float>(text.get_float("rms_norm_eps", 1e-6, 0.0, 1.0));
  // The wrapper's value governs where both levels have one.
  result.tied_head = config.get_bool("tie_word_embeddings", text.get_bool("tie_word_embeddings", false));
  const std::string activation = text.get_string("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    text.reject("hidden_act", "the activation '{}' is not supported in this family; 'silu' is", activation);
  result.full_attention = read_layer_types(text);
  read_attention(text, result);
  read_delta_net(text, result);
  if (mixture_of_experts) {
    read_moe(text, result);
  } else {
    result.intermediate = text.require_int("intermediate_size", 1, kMaxWidth);
  }
  return result;
}

}  // namespace pergola
