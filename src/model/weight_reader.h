#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/checkpoint.h"
#include "model/blueprint.h"

namespace pergola {

/// Turns tensor names into the parts of a blueprint, as all families do it. Throws Error as Checkpoint does.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, std::int64_t hidden);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  /// What stands before "embed_tokens.weight": "model.", or a longer one where a wrapper adds vision.
  const std::string& prefix() const { return prefix_; }

  NormBlueprint norm(const std::string& key, std::int64_t width, float eps, bool zero_centred) const;

  /// A linear that must have a bias, or must not.
  LinearView linear(const std::string& key, std::int64_t in, std::int64_t out, bool bias) const;
  /// The parts of a linear that is stored part by part at `keys`, or else whole at `fused`, part after part.
  std::vector<LinearView> parts(std::span<const std::string> keys, std::span<const std::int64_t> outs,
                                const std::string& fused, std::int64_t in, bool bias) const;
  /// Routers and gates, which are never quantised.
  LinearView dense_linear(const std::string& key, std::int64_t out) const;

  /// Gate, up and down at KEY + names[0..2]; gate and up may be fused as one linear at `fused` (may be empty).
  MoeView::Expert expert(const std::string& key, std::span<const std::string_view, 3> names, const std::string& fused,
                         std::int64_t width, bool bias) const;
  /// All experts below `key` ("...mlp.experts."), one by one or fused ([experts, 2 width, hidden], gate first).
  std::vector<MoeView::Expert> experts(const std::string& key, std::span<const std::string_view, 3> names,
                                       std::int64_t count, std::int64_t width, bool bias) const;

  DenseView embedding(std::int64_t vocab) const;
  /// A head of its own wins over a tied one: converted models keep the flag but store a quantised head.
  LinearView head(std::int64_t vocab, bool tied) const;

 private:
  const Checkpoint& checkpoint_;
  std::int64_t hidden_;
  std::string prefix_;
};

inline constexpr std::array<std::string_view, 3> kGateUpDown = {"gate_proj", "up_proj", "down_proj"};

}  // namespace pergola
