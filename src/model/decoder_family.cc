#include "model/decoder_family.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "model/decoder_experts.h"
#include "model/rope_parameters.h"
#include "model/text_config.h"
#include "model/weight_reader.h"

namespace pergola {

namespace {

/// What a family's configuration says about every layer's attention.
struct AttentionConfig {
  Attention layer;  ///< without window and positions
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
};

/// One family's description at work on one checkpoint.
class DecoderReader {
 public:
  DecoderReader(const Checkpoint& checkpoint, const DecoderFamily& family)
      : family_(family),
        text_(checkpoint.config()),
        hidden_(text_.require_int("hidden_size", kMaxWidth)),
        weights_(checkpoint, hidden_) {}

  ModelBlueprint read() {
    ModelBlueprint model;
    model.hidden_size = hidden_;
    model.vocab_size = or_required("vocab_size", family_.vocab_if_absent, kMaxVocab);
    model.max_positions = or_required("max_position_embeddings", family_.positions_if_absent, kMaxPositions);
    eps_ = static_cast<float>(text_.get_float("rms_norm_eps", family_.eps_if_absent, 0.0, 1.0));
    check_activation();
    const bool tied = read_tied();
    attention_ = read_attention_config();
    read_positions(model);
    if (family_.capped_logits)
      model.logit_cap = static_cast<float>(text_.get_float("final_logit_softcapping", 0.0, 0.0, 1e6));
    if (family_.scaled_embedding) model.embedding_scale = std::sqrt(static_cast<float>(hidden_));
    if (family_.experts != nullptr) experts_.emplace(*family_.experts, text_, weights_, hidden_);
    if (!experts_ || experts_->has_dense_layers()) intermediate_ = text_.require_int("intermediate_size", kMaxWidth);
    mlp_bias_ = setting(family_.mlp_bias, family_.mlp_bias_field);
    text_.check_unread();

    model.embedding = weights_.embedding(model.vocab_size);
    for (std::size_t i = 0; i < windows_.size(); ++i) model.layers.push_back(read_layer(i));
    model.final_norm = norm(weights_.prefix() + "norm", hidden_);
    model.head = weights_.head(model.vocab_size, tied);
    return model;
  }

 private:
  // --- configuration ---

  std::int64_t or_required(std::string_view field, std::int64_t absent, std::int64_t max) {
    return absent > 0 ? text_.get_int(field, absent, 1, max) : text_.require_int(field, max);
  }

  bool setting(Setting value, std::string_view field) {
    return value == Setting::from_config ? text_.get_bool(field, false) : value == Setting::always;
  }

  void check_activation() {
    const bool gelu = family_.activation == Activation::gelu_tanh;
    const std::string_view field = text_.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    const std::string name = text_.get_string(field, gelu ? "gelu_pytorch_tanh" : "silu");
    const bool known = gelu ? name == "gelu_pytorch_tanh" : name == "silu" || name == "swish";
    if (!known)
      text_.reject(field, "the activation '{}' is not supported in this architecture; '{}' is", name,
                   gelu ? "gelu_pytorch_tanh" : "silu");
  }

  /// The wrapper's value governs where both levels have one.
  bool read_tied() {
    const bool inner = text_.get_bool("tie_word_embeddings", family_.tied_if_absent);
    return weights_.checkpoint().config().get_bool("tie_word_embeddings", inner);
  }

  AttentionConfig read_attention_config() {
    AttentionConfig result;
    Attention& layer = result.layer;
    layer.heads = family_.heads_if_absent > 0 ? text_.count("num_attention_heads", family_.heads_if_absent)
                                              : text_.require_count("num_attention_heads");
    layer.kv_heads =
        text_.count("num_key_value_heads", family_.kv_heads_if_absent > 0 ? family_.kv_heads_if_absent : layer.heads);
    text_.config().check_divides("num_attention_heads", layer.heads, layer.kv_heads, "num_key_value_heads");
    std::int64_t head_dim = family_.head_dim_if_absent;
    if (head_dim == 0 && !text_.has("head_dim")) {
      text_.config().check_divides("hidden_size", hidden_, layer.heads, "num_attention_heads");
      head_dim = hidden_ / layer.heads;
    }
    layer.head_dim = text_.count("head_dim", head_dim);
    const double scalar = family_.query_scalar ? text_.get_float("query_pre_attn_scalar", 256, 1e-3, 1e6)
                                               : static_cast<double>(layer.head_dim);
    layer.scale = static_cast<float>(1.0 / std::sqrt(scalar));
    if (family_.capped_scores)
      layer.soft_cap = static_cast<float>(text_.get_float("attn_logit_softcapping", 0.0, 0.0, 1e6));
    result.qkv_bias = setting(family_.qkv_bias, family_.qkv_bias_field);
    result.output_bias = setting(family_.output_bias, family_.output_bias_field);
    result.qk_norm = setting(family_.qk_norm, "use_qk_norm");
    if (text_.get_bool("use_bidirectional_attention", false))
      text_.reject("use_bidirectional_attention", "attention to later tokens is not supported");
    return result;
  }

  void read_positions(ModelBlueprint& model) {
    text_.note("partial_rotary_factor");
    RopeDefaults defaults{family_.theta_if_absent, family_.partial_rotary_if_absent,
                          family_.local_theta_if_absent > 0 ? "full_attention" : ""};
    rope_ = read_rope(text_.config(), attention_.layer.head_dim, defaults);
    if (family_.local_theta_if_absent > 0) local_rope_ = read_local_rope(defaults);
    if (rope_.max_positions > 0 && rope_.max_positions < model.max_positions) {
      model.max_positions = rope_.max_positions;
      model.long_rope_left_out = true;
    }
    const auto layers = text_.require_int("num_hidden_layers", kMaxCount);
    windows_ = read_windows(layers);
    // No sequence reaches such a window: pages hold it better than a ring.
    for (std::int64_t& window : windows_) window = window >= model.max_positions ? 0 : window;
    rotated_ = read_rotated(layers);
  }

  /// Layers with a window: `rope_parameters.sliding_attention`, or in older files unscaled `rope_local_base_freq`.
  RopeParameters read_local_rope(RopeDefaults defaults) {
    const auto parameters = text_.config().object("rope_parameters");
    text_.note("rope_local_base_freq");
    const double theta =
        text_.config().get_float("rope_local_base_freq", family_.local_theta_if_absent, 1.0 + 1e-6, 1e12);
    if (!parameters || !parameters->has("sliding_attention")) return plain_rope(theta, rope_.dims);
    defaults.layer_type = "sliding_attention";
    defaults.theta = theta;
    return read_rope(text_.config(), attention_.layer.head_dim, defaults);
  }

  /// The window of each layer; 0 = none.
  std::vector<std::int64_t> read_windows(std::int64_t layers) {
    std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
    const std::vector<std::string> types = text_.get_string_list("layer_types");
    if (!types.empty() && types.size() != windows.size())
      text_.reject("layer_types", "there are {} layer types for {} layers", types.size(), layers);
    for (const std::string& type : types) {
      if (type != "full_attention" && (type != "sliding_attention" || family_.windows == WindowRule::none))
        text_.reject("layer_types", "the layer type '{}' is not supported in this architecture", type);
    }
    if (family_.windows == WindowRule::none) return windows;

    const std::int64_t window = text_.get_int("sliding_window", family_.window_if_absent, 0, kMaxPositions);
    const bool used = text_.get_bool("use_sliding_window", family_.windows != WindowRule::last_layers);
    const std::int64_t first_windowed =
        family_.windows == WindowRule::last_layers ? text_.get_int("max_window_layers", 28, 0, kMaxCount) : 0;
    const std::int64_t pattern =
        text_.get_int("sliding_window_pattern", family_.window_pattern_if_absent, 1, kMaxCount);
    for (std::int64_t i = 0; i < layers; ++i) {
      bool windowed = false;
      if (!types.empty()) {
        windowed = types[static_cast<std::size_t>(i)] == "sliding_attention";
        if (windowed && window == 0)
          text_.reject("layer_types", "layer {} has a window, but sliding_window is not set", i);
      } else if (family_.windows == WindowRule::pattern) {
        windowed = (i + 1) % pattern != 0;
      } else {
        windowed = used && i >= first_windowed;
      }
      windows[static_cast<std::size_t>(i)] = windowed ? window : 0;
    }
    return windows;
  }

  std::vector<bool> read_rotated(std::int64_t layers) {
    std::vector<bool> rotated(static_cast<std::size_t>(layers), true);
    if (!family_.layers_without_rope) return rotated;
    const std::int64_t interval = text_.get_int("no_rope_layer_interval", 4, 1, kMaxCount);
    // Despite its name the list says 1 for layers that rotate.
    const std::vector<std::int64_t> listed = text_.get_int_list("no_rope_layers", 1);
    if (!listed.empty() && listed.size() != rotated.size())
      text_.reject("no_rope_layers", "there are {} entries for {} layers", listed.size(), layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto index = static_cast<std::size_t>(i);
      rotated[index] = listed.empty() ? (i + 1) % interval != 0 : listed[index] == 1;
    }
    return rotated;
  }

  // --- weights ---

  NormBlueprint norm(const std::string& key, std::int64_t width) const {
    return weights_.norm(key, width, eps_, family_.zero_centred_norms);
  }

  std::optional<NormBlueprint> optional_norm(const std::string& key, std::string_view name) const {
    if (name.empty()) return std::nullopt;
    return norm(key + std::string(name), hidden_);
  }

  static std::string fused(const std::string& key, std::string_view name) {
    return name.empty() ? std::string() : key + std::string(name);
  }

  LayerBlueprint read_layer(std::size_t index) const {
    const std::string key = fmt::format("{}layers.{}.", weights_.prefix(), index);
    LayerBlueprint layer;
    layer.input_norm = norm(key + std::string(family_.input_norm), hidden_);
    layer.post_norm = norm(key + std::string(family_.feed_forward_norm), hidden_);
    layer.mixer_output_norm = optional_norm(key, family_.attention_output_norm);
    layer.feed_forward_output_norm = optional_norm(key, family_.feed_forward_output_norm);
    layer.mixer = read_attention(key, index);
    if (experts_ && experts_->in_layer(static_cast<std::int64_t>(index))) {
      layer.feed_forward = experts_->read(key);
    } else {
      layer.feed_forward = read_mlp(key);
    }
    return layer;
  }

  AttentionBlueprint read_attention(const std::string& layer_key, std::size_t index) const {
    const std::string key = layer_key + "self_attn.";
    AttentionBlueprint block;
    block.name = layer_key + "self_attn";
    block.layer = attention_.layer;
    block.layer.window = windows_[index];
    if (rotated_[index]) set_rope(block, windows_[index] > 0 && local_rope_ ? *local_rope_ : rope_);
    if (attention_.qk_norm) {
      block.q_norm = norm(key + "q_norm", attention_.layer.head_dim);
      block.k_norm = norm(key + "k_norm", attention_.layer.head_dim);
    }
    if (family_.sinks) block.sinks = weights_.checkpoint().dense(key + "sinks", {attention_.layer.heads});
    const std::int64_t q = std::int64_t{attention_.layer.heads} * attention_.layer.head_dim;
    const std::int64_t kv = std::int64_t{attention_.layer.kv_heads} * attention_.layer.head_dim;
    std::vector<LinearView> parts =
        weights_.parts(std::array{key + "q_proj", key + "k_proj", key + "v_proj"}, std::array{q, kv, kv},
                       fused(layer_key, family_.fused_qkv), hidden_, attention_.qkv_bias);
    block.q = std::move(parts[0]);
    block.k = std::move(parts[1]);
    block.v = std::move(parts[2]);
    block.o = weights_.linear(key + "o_proj", q, hidden_, attention_.output_bias);
    return block;
  }

  void set_rope(AttentionBlueprint& block, const RopeParameters& rope) const {
    block.layer.rope.dims = rope.dims;
    block.layer.rope.interleaved = family_.interleaved_rope;
    block.layer.rope.magnitude = rope.magnitude;
    block.layer.query_growth = rope.query_growth;
    block.layer.query_growth_length = rope.query_growth_length;
    block.inv_freq = rope.inv_freq;
  }

  MlpBlueprint read_mlp(const std::string& layer_key) const {
    MoeView::Expert mlp = weights_.expert(layer_key + "mlp.", kGateUpDown, fused(layer_key, family_.fused_gate_up),
                                          intermediate_, mlp_bias_);
    return {layer_key + "mlp", family_.activation, std::move(mlp.gate), std::move(mlp.up), std::move(mlp.down)};
  }

  const DecoderFamily& family_;
  TextConfig text_;
  std::int64_t hidden_;
  WeightReader weights_;
  float eps_ = 0;
  AttentionConfig attention_;
  RopeParameters rope_;
  std::optional<RopeParameters> local_rope_;
  std::vector<std::int64_t> windows_;
  std::vector<bool> rotated_;
  std::optional<DecoderExperts> experts_;
  std::int64_t intermediate_ = 0;
  bool mlp_bias_ = false;
};

}  // namespace

ModelBlueprint read_decoder(const Checkpoint& checkpoint, const DecoderFamily& family) {
  return DecoderReader(checkpoint, family).read();
}

}  // namespace pergola
