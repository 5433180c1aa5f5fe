#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/tensor.h"
#include "trellis/linear_view.h"

namespace pergola {

/// y = x * rsqrt(mean(x^2) + eps) * weight, in fp32. Families that store zero-centred weights have the 1 added (in
/// fp32) when a model is loaded.
struct RmsNorm {
  Tensor weight;  ///< f32 [1, width]
  float eps = 1e-6f;
};

/// How a gated feed-forward combines its gate g with u, the "up" value.
enum class Activation : std::uint8_t {
  silu,            ///< silu(g) * u
  gelu_tanh,       ///< gelu(g) * u, in the tanh approximation
  clamped_swiglu,  ///< g' * sigmoid(1.702 g') * (u' + 1) with g' = min(g, 7), u' = clamp(u, -7, 7) (gpt-oss)
};
inline constexpr float kSwigluAlpha = 1.702f;
inline constexpr float kSwigluLimit = 7.0f;

/// Rotary embedding of the first `dims` values of every head. Angle of pair j at position p: p * inv_freq[j] (both
/// fp32).
struct Rope {
  int dims = 0;              ///< even; 0 = no rotation
  bool interleaved = false;  ///< pairs (2j, 2j+1) instead of (j, j + dims/2)
  Tensor inv_freq;           ///< f32 [1, dims/2]
  float magnitude = 1.0f;    ///< factor of cos and sin (YaRN's attention factor)
};

/// One attention layer without its projections. q is [rows, heads * head_dim], or with `gated` [rows, heads * 2 *
/// head_dim]: per head the query, then the output gate.
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool gated = false;
  float scale = 1.0f;             ///< factor of q.k
  std::optional<RmsNorm> q_norm;  ///< per head over head_dim, before RoPE
  std::optional<RmsNorm> k_norm;
  Rope rope;
  std::int64_t window = 0;  ///< > 0: the token at position p sees only positions p - window + 1 .. p
  float soft_cap = 0.0f;    ///< > 0: a score s becomes soft_cap * tanh(s / soft_cap)
  Tensor sinks;  ///< f32 [1, heads]: a score of each head that joins the softmax without a value; may be empty
  /// > 0: after RoPE, queries at position p are multiplied by 1 + query_growth * ln(1 + floor(p /
  /// query_growth_length)).
  float query_growth = 0.0f;
  std::int64_t query_growth_length = 1;
};

/// One gated-delta-net layer without its projections (docs/architecture.md names the source of the formulas).
struct DeltaNet {
  int key_heads = 0;
  int value_heads = 0;  ///< a multiple of key_heads; value head h uses key head h / (value_heads / key_heads)
  int key_dim = 0;
  int value_dim = 0;
  int kernel = 4;      ///< taps of the causal convolution
  Tensor conv_weight;  ///< f32 [channels, kernel]; the last tap multiplies the current token
  Tensor a_log;        ///< f32 [1, value_heads]
  Tensor dt_bias;      ///< f32 [1, value_heads]
  RmsNorm norm;        ///< over value_dim, shared by the heads; then times silu(z)

  std::int64_t channels() const {
    return 2 * std::int64_t{key_heads} * key_dim + std::int64_t{value_heads} * value_dim;
  }
};

/// How a router turns its logits into experts and weights.
enum class RouterScore : std::uint8_t {
  softmax_top_k,  ///< the top-k logits, softmax over those; ties: the lowest expert first
  softmax_all,    ///< the top-k logits, weights from the softmax over all experts
  sigmoid,        ///< s = sigmoid(logit); the top-k of s + correction; weights s / (their sum + 1e-20) * routed_scale
};

inline constexpr int kMaxExpertGroups = 64;

/// The host side of one mixture-of-experts layer, to be bound. Every projection has its own K, codebook and sign
/// vectors.
struct MoeView {
  struct Expert {
    LinearView gate;
    LinearView up;
    LinearView down;
  };

  std::string name;
  std::int64_t hidden = 0;
  int top_k = 0;
  RouterScore score = RouterScore::softmax_top_k;
  Activation activation = Activation::silu;
  /// With `sigmoid` only: what is added to a score when experts are chosen ([1, experts]), and groups: only experts of
  /// the `top_groups` groups whose best two choosing scores sum highest are candidates.
  std::optional<DenseView> correction;
  int groups = 1;  ///< divides the experts into runs of equal length; at most kMaxExpertGroups
  int top_groups = 1;
  float routed_scale = 1.0f;
  LinearView router;  ///< dense [all experts, hidden]
  /// All of one intermediate width. Where ranks hold some of the experts each, those of the router's rows first_expert
  /// on; what the others would add is left out.
  std::vector<Expert> experts;
  std::int64_t first_expert = 0;
  std::optional<Expert> shared;           ///< added to the routed sum
  std::optional<LinearView> shared_gate;  ///< [1, hidden]: the shared expert is scaled by sigmoid of it
};

/// A group of linears that share their input, bound to a device. Members may differ in everything but in_features.
class LinearGroup {
 public:
  virtual ~LinearGroup() = default;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t members() const = 0;
  virtual std::int64_t out_features(std::int64_t member) const = 0;
  /// Device memory that holds the packed weights.
  virtual std::size_t bytes() const = 0;
};

/// A mixture-of-experts layer bound to a device.
class Moe {
 public:
  virtual ~Moe() = default;
  virtual std::size_t bytes() const = 0;
};

/// An embedding table bound to a device.
class Embedding {
 public:
  virtual ~Embedding() = default;
  virtual std::size_t bytes() const = 0;
};

}  // namespace pergola
