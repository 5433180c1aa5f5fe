#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/decoder_family.h"
#include "model/text_config.h"
#include "model/weight_reader.h"

namespace pergola {

/// The mixture-of-experts layers of a family at work on one checkpoint.
class DecoderExperts {
 public:
  /// Reads and checks the configuration. All arguments outlive the object.
  DecoderExperts(const ExpertFamily& family, TextConfig& text, const WeightReader& weights, std::int64_t hidden);

  bool has_dense_layers() const { return dense_layers_; }
  /// Whether this layer has experts; the others have a dense feed-forward.
  bool in_layer(std::int64_t layer) const { return in_layer_[static_cast<std::size_t>(layer)]; }
  /// The layer whose tensors begin with `layer_key` ("model.layers.3.").
  MoeView read(const std::string& layer_key) const;

 private:
  void read_routing(TextConfig& text);
  void read_layers(TextConfig& text);
  std::vector<MoeView::Expert> read_interleaved(const std::string& key) const;

  const ExpertFamily& family_;
  const WeightReader& weights_;
  std::int64_t hidden_;
  std::int64_t count_ = 0;
  std::int64_t width_ = 0;
  std::int64_t shared_width_ = 0;
  MoeView routing_;  ///< what all layers share: no weights
  std::vector<bool> in_layer_;
  bool dense_layers_ = false;
};

}  // namespace pergola
