#include "model/text_config.h"

#include <array>
#include <nlohmann/json.hpp>

namespace pergola {

namespace {

/// Fields by which some family changes its mathematics, with a value that does not.
struct Guard {
  std::string_view field;
  double neutral = 0;
};

constexpr std::array kGuards = {
    // Attention
    Guard{"attention_bias"},
    Guard{"attention_out_bias"},
    Guard{"use_qk_norm"},
    Guard{"qk_layernorm"},
    Guard{"use_qkv_bias"},
    Guard{"attn_logit_softcapping"},
    Guard{"attention_multiplier"},
    Guard{"query_pre_attn_scalar"},
    Guard{"clip_qkv"},
    Guard{"alibi"},
    Guard{"attn_temperature_tuning"},
    Guard{"attn_output_gate"},
    Guard{"sliding_window"},
    Guard{"use_sliding_window"},
    Guard{"sliding_window_pattern"},
    Guard{"attention_chunk_size"},
    Guard{"no_rope_layers"},
    Guard{"no_rope_layer_interval"},
    Guard{"layer_types"},
    Guard{"use_bidirectional_attention"},
    Guard{"kv_lora_rank"},
    Guard{"q_lora_rank"},
    Guard{"num_kv_shared_layers"},
    Guard{"swa_num_key_value_heads"},
    Guard{"add_swa_attention_sink_bias"},
    // Positions
    Guard{"partial_rotary_factor", 1},
    Guard{"rotary_pct", 1},
    Guard{"rotary_dim"},
    Guard{"rope_interleave"},
    Guard{"rope_local_base_freq"},
    Guard{"llama_4_scaling"},
    // Feed-forward and experts
    Guard{"mlp_bias"},
    Guard{"use_bias"},
    Guard{"bias"},
    Guard{"num_experts"},
    Guard{"num_local_experts"},
    Guard{"n_routed_experts"},
    Guard{"n_shared_experts"},
    Guard{"moe_num_experts"},
    Guard{"shared_expert_intermediate_size"},
    Guard{"first_k_dense_replace"},
    Guard{"n_group", 1},
    Guard{"routed_scaling_factor", 1},
    Guard{"moe_router_enable_expert_bias"},
    Guard{"swiglu_limit"},
    Guard{"activation_sparsity_pattern"},
    Guard{"intermediate_size_mlp"},
    // Residual stream and head
    Guard{"final_logit_softcapping"},
    Guard{"logit_scale", 1},
    Guard{"logits_scaling", 1},
    Guard{"embedding_multiplier", 1},
    Guard{"residual_multiplier", 1},
    Guard{"use_parallel_residual"},
    Guard{"parallel_attn"},
    Guard{"hidden_size_per_layer_input"},
    Guard{"apply_residual_connection_post_layernorm"},
};

bool is_neutral(const nlohmann::json& value, double neutral) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == neutral;
  return value.empty();
}

}  // namespace

void TextConfig::check_unread() const {
  for (const Guard& guard : kGuards) {
    if (read_.contains(guard.field)) continue;
    const auto found = config_.json().find(guard.field);
    if (found == config_.json().end() || is_neutral(*found, guard.neutral)) continue;
    reject(guard.field, "the value {} is not supported in this architecture", found->dump());
  }
}

}  // namespace pergola
