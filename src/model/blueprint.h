#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/operations.h"
#include "trellis/linear_view.h"

namespace pergola {

/// A model before any device is involved: what an architecture's reader makes of a checkpoint's configuration and
/// tensor headers. Views point into the checkpoint. The tensors of `Attention` and `DeltaNet` are empty here; blocks
/// fill them when they are bound.

/// The weight of a norm as stored.
struct NormBlueprint {
  DenseView weight;  ///< [1, width]
  float eps = 1e-6f;
  bool zero_centred = false;  ///< the norm multiplies by 1 + weight
};

/// Attention with its projections; q is twice as wide when the layer is gated.
struct AttentionBlueprint {
  std::string name;
  Attention layer;
  std::optional<NormBlueprint> q_norm;
  std::optional<NormBlueprint> k_norm;
  std::vector<float> inv_freq;     ///< rope.dims / 2 values
  std::optional<DenseView> sinks;  ///< [1, heads]
  LinearView q;
  LinearView k;
  LinearView v;
  LinearView o;
};

/// A gated delta net with its projections.
struct DeltaNetBlueprint {
  std::string name;
  DeltaNet layer;
  NormBlueprint norm;
  DenseView conv_weight;  ///< [channels, kernel]
  DenseView a_log;        ///< [1, value_heads]
  DenseView dt_bias;      ///< [1, value_heads]
  LinearView qkv;
  LinearView z;
  std::optional<LinearView> qkvz;  ///< both as they are stored, where they are rows of one linear (split_qkvz)
  LinearView b;
  LinearView a;
  LinearView out;
};

/// down(activation(gate(x)) * up(x)).
struct MlpBlueprint {
  std::string name;
  Activation activation = Activation::silu;
  LinearView gate;
  LinearView up;
  LinearView down;
};

/// x += mixer(input_norm(x)); x += feed_forward(post_norm(x)). With output norms ("sandwich"), what a block adds is
/// normed first.
struct LayerBlueprint {
  NormBlueprint input_norm;
  NormBlueprint post_norm;
  std::variant<AttentionBlueprint, DeltaNetBlueprint> mixer;
  std::variant<MlpBlueprint, MoeView> feed_forward;
  std::optional<NormBlueprint> mixer_output_norm;
  std::optional<NormBlueprint> feed_forward_output_norm;
};

/// A decoder-only language model: embedding, layers, final norm, head.
struct ModelBlueprint {
  std::string architecture;  ///< as the configuration names it
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_positions = 0;
  bool long_rope_left_out = false;  ///< beyond max_positions LongRoPE would change all positions
  DenseView embedding;              ///< [vocab_size, hidden_size]
  float embedding_scale = 1.0f;
  std::vector<LayerBlueprint> layers;
  NormBlueprint final_norm;
  LinearView head;
  float logit_cap = 0.0f;  ///< > 0: a logit l becomes logit_cap * tanh(l / logit_cap)
};

}  // namespace pergola
