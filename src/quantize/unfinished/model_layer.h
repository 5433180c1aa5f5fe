#pragma once

#include <memory>

#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// One bound layer: x += mixer(input_norm(x)); x += feed_forward(post_norm(x)). The norms are applied by whoever runs
/// the layer, because each is fused with the residual addition before it.
struct Layer {
  Layer(const LayerBlueprint& blueprint, const BlockContext& context);

  RmsNorm input_norm;
  RmsNorm post_norm;
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<FeedForward> feed_forward;
};

}  // namespace pergola
