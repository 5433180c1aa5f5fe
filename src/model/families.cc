#include "model/families.h"

namespace pergola {

const DecoderFamily kLlama{
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .mlp_bias = Setting::from_config,
};

const DecoderFamily kMistral{
    .windows = WindowRule::all_layers,
};

const DecoderFamily kQwen2{
    .qkv_bias = Setting::always,
    .windows = WindowRule::last_layers,
};

const DecoderFamily kQwen3{
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .qk_norm = Setting::always,
    .windows = WindowRule::last_layers,
};

const DecoderFamily kSmolLm3{
    .tied_if_absent = true,
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .theta_if_absent = 2e6,
    .layers_without_rope = true,
    .windows = WindowRule::last_layers,
    .mlp_bias = Setting::from_config,
};

const DecoderFamily kErnie45{
    .tied_if_absent = true,
    .eps_if_absent = 1e-5,
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .qkv_bias_field = "use_bias",
    .output_bias_field = "use_bias",
    .head_dim_if_absent = 128,
    .theta_if_absent = 5e5,
    .interleaved_rope = true,
    .mlp_bias = Setting::from_config,
    .mlp_bias_field = "use_bias",
};

const DecoderFamily kSeedOss{
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .output_bias_field = "attention_out_bias",
    .head_dim_if_absent = 128,
    .mlp_bias = Setting::from_config,
};

const DecoderFamily kPhi3{
    .fused_qkv = "self_attn.qkv_proj",
    .fused_gate_up = "mlp.gate_up_proj",
    .eps_if_absent = 1e-5,
    .windows = WindowRule::all_layers,
};

namespace {

constexpr ExpertFamily kQwen3Experts{
    .renormalised = Setting::from_config,
    .dense_between = true,
};

constexpr ExpertFamily kMixtralExperts{
    .block = "block_sparse_moe.",
    .projections = {"w1", "w3", "w2"},
    .count_field = "num_local_experts",
    .width_field = "intermediate_size",
};

constexpr ExpertFamily kGlm4Experts{
    .count_field = "n_routed_experts",
    .score = RouterScore::sigmoid,
    .renormalised = Setting::from_config,
    .dense_first_layers = true,
    .shared = "shared_experts",
};

constexpr ExpertFamily kGptOssExperts{
    .router = "router",
    .count_field = "num_local_experts",
    .width_field = "intermediate_size",
    .activation = Activation::clamped_swiglu,
    .router_bias = true,
    .expert_bias = true,
    .interleaved = true,
};

/// What Gemma 2 and 3 share.
constexpr DecoderFamily kGemma{
    .attention_output_norm = "post_attention_layernorm",
    .feed_forward_norm = "pre_feedforward_layernorm",
    .feed_forward_output_norm = "post_feedforward_layernorm",
    .zero_centred_norms = true,
    .scaled_embedding = true,
    .tied_if_absent = true,
    .capped_logits = true,
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .query_scalar = true,
    .head_dim_if_absent = 256,
    .windows = WindowRule::pattern,
    .window_if_absent = 4096,
    .activation = Activation::gelu_tanh,
};

constexpr DecoderFamily gemma2() {
  DecoderFamily family = kGemma;
  family.capped_scores = true;
  return family;
}

/// The text configurations of the multimodal releases leave out much.
constexpr DecoderFamily gemma3() {
  DecoderFamily family = kGemma;
  family.qk_norm = Setting::always;
  family.heads_if_absent = 8;
  family.kv_heads_if_absent = 4;
  family.vocab_if_absent = 262208;
  family.positions_if_absent = 131072;
  family.theta_if_absent = 1e6;
  family.local_theta_if_absent = 1e4;
  family.window_pattern_if_absent = 6;
  return family;
}

}  // namespace

const DecoderFamily kQwen3Moe{
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .qk_norm = Setting::always,
    .windows = WindowRule::last_layers,
    .experts = &kQwen3Experts,
};

const DecoderFamily kMixtral{
    .eps_if_absent = 1e-5,
    .theta_if_absent = 1e6,
    .windows = WindowRule::all_layers,
    .experts = &kMixtralExperts,
};

const DecoderFamily kGemma2 = gemma2();
const DecoderFamily kGemma3 = gemma3();

const DecoderFamily kGlm4{
    .attention_output_norm = "post_self_attn_layernorm",
    .feed_forward_output_norm = "post_mlp_layernorm",
    .fused_gate_up = "mlp.gate_up_proj",
    .qkv_bias = Setting::from_config,
    .head_dim_if_absent = 128,
    .partial_rotary_if_absent = 0.5,
    .interleaved_rope = true,
};

const DecoderFamily kGlm4Moe{
    .qkv_bias = Setting::from_config,
    .qk_norm = Setting::from_config,
    .head_dim_if_absent = 128,
    .partial_rotary_if_absent = 0.5,
    .experts = &kGlm4Experts,
};

const DecoderFamily kGptOss{
    .eps_if_absent = 1e-5,
    .qkv_bias = Setting::from_config,
    .output_bias = Setting::from_config,
    .sinks = true,
    .head_dim_if_absent = 64,
    .theta_if_absent = 150000,
    .windows = WindowRule::pattern,
    .window_if_absent = 128,
    .experts = &kGptOssExperts,
};

}  // namespace pergola
