#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/operations.h"
#include "format/checkpoint.h"
#include "model/blueprint.h"

namespace pergola {

/// Whether a family has something: never, always, or as a field of the configuration says.
enum class Setting : std::uint8_t { never, always, from_config };

/// Which layers see a window only. `layer_types` of a configuration wins where a family reads windows at all.
enum class WindowRule : std::uint8_t {
  none,         ///< no layer
  all_layers,   ///< every layer, if `sliding_window` is set
  last_layers,  ///< with `use_sliding_window`: layers from `max_window_layers` on
  pattern,      ///< layer i unless (i + 1) is a multiple of `sliding_window_pattern`
};

/// How a family routes and names experts.
struct ExpertFamily {
  std::string_view block = "mlp.";  ///< prefix of all names below, after the layer's
  std::string_view router = "gate";
  std::array<std::string_view, 3> projections = {"gate_proj", "up_proj", "down_proj"};
  std::string_view count_field = "num_experts";
  std::string_view width_field = "moe_intermediate_size";
  RouterScore score = RouterScore::softmax_top_k;
  Setting renormalised = Setting::always;  ///< weights over the chosen experts; from_config: `norm_topk_prob`
  Activation activation = Activation::silu;
  bool router_bias = false;
  bool expert_bias = false;
  bool interleaved = false;         ///< fused as [experts, in, out], gate and up in alternating columns; or as MXFP4
  bool dense_first_layers = false;  ///< `first_k_dense_replace` layers, then experts
  bool dense_between = false;       ///< `mlp_only_layers`, `decoder_sparse_step`
  std::string_view shared = {};     ///< block of shared experts, `n_shared_experts` times as wide
};

/// One family of decoder-only transformers: which of the shared blocks and options it uses, how its configuration and
/// its tensors are called. One constant of this type is all that a family adds; read_decoder does the rest.
///
/// A layer is x += norm?(attention(norm(x))); x += norm?(feed_forward(norm(x))), with tensors below
/// `PREFIXlayers.N.`.
struct DecoderFamily {
  // Names.
  std::string_view input_norm = "input_layernorm";
  std::string_view attention_output_norm = {};  ///< after attention, before the residual; empty: none
  std::string_view feed_forward_norm = "post_attention_layernorm";
  std::string_view feed_forward_output_norm = {};
  std::string_view fused_qkv = {};      ///< q, k and v may be rows of this tensor
  std::string_view fused_gate_up = {};  ///< gate and up may be rows of this tensor

  // Norms, embedding, head.
  bool zero_centred_norms = false;  ///< norms multiply by 1 + weight
  bool scaled_embedding = false;    ///< the embedding times sqrt(hidden_size)
  bool tied_if_absent = false;      ///< `tie_word_embeddings`
  bool capped_logits = false;       ///< `final_logit_softcapping`
  double eps_if_absent = 1e-6;

  // Attention.
  Setting qkv_bias = Setting::never;
  Setting output_bias = Setting::never;
  std::string_view qkv_bias_field = "attention_bias";
  std::string_view output_bias_field = "attention_bias";
  Setting qk_norm = Setting::never;      ///< per head, before RoPE; from_config: `use_qk_norm`
  bool capped_scores = false;            ///< `attn_logit_softcapping`
  bool query_scalar = false;             ///< scores times `query_pre_attn_scalar`^-0.5 instead of head_dim^-0.5
  bool sinks = false;                    ///< `self_attn.sinks`
  std::int64_t head_dim_if_absent = 0;   ///< 0: hidden_size / heads
  int heads_if_absent = 0;               ///< 0: the field must be there
  int kv_heads_if_absent = 0;            ///< 0: as many as heads
  std::int64_t vocab_if_absent = 0;      ///< 0: the field must be there
  std::int64_t positions_if_absent = 0;  ///< `max_position_embeddings`; 0: the field must be there

  // Positions and windows.
  double theta_if_absent = 1e4;
  double local_theta_if_absent = 0;  ///< > 0: layers with a window rotate by this theta (`rope_local_base_freq`)
  double partial_rotary_if_absent = 1.0;
  bool interleaved_rope = false;
  bool layers_without_rope = false;  ///< `no_rope_layers`, `no_rope_layer_interval`
  WindowRule windows = WindowRule::none;
  std::int64_t window_pattern_if_absent = 2;
  std::int64_t window_if_absent = 0;

  // Feed-forward.
  Activation activation = Activation::silu;
  Setting mlp_bias = Setting::never;
  std::string_view mlp_bias_field = "mlp_bias";
  const ExpertFamily* experts = nullptr;  ///< null: dense
};

/// The blueprint of a checkpoint of this family. Throws Error as read_blueprint does.
ModelBlueprint read_decoder(const Checkpoint& checkpoint, const DecoderFamily& family);

}  // namespace pergola
