#pragma once

#include <memory>
#include <optional>

#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// One bound layer: x += mixer(input_norm(x)); x += feed_forward(post_norm(x)), where what a block adds may be normed
/// first. The norms are applied by whoever runs
/// the layer, because each is fused with the residual addition before it.
struct Layer {
  Layer(const LayerBlueprint& blueprint, const BlockContext& context);

  RmsNorm input_norm;
  RmsNorm post_norm;
  std::optional<RmsNorm> mixer_output_norm;
  std::optional<RmsNorm> feed_forward_output_norm;
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<FeedForward> feed_forward;
};

}  // namespace pergola
