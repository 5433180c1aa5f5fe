#pragma once

#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// Dense gated feed-forward: down(activation(gate(x)) * up(x)).
class MlpBlock final : public FeedForward {
 public:
  MlpBlock(const MlpBlueprint& blueprint, const BlockContext& context);

  void forward(const Tensor& x, const Tensor& out) override;

  /// The intermediate tensors of a step.
  struct Intermediates {
    Tensor gate;
    Tensor up;
  };
  static Intermediates lay_out(const MlpBlueprint& blueprint, const Backend& backend, ScratchLayout& layout);

 private:
  Backend& backend_;
  const Scratch& scratch_;
  Activation activation_;
  Intermediates tensors_;
  std::unique_ptr<LinearGroup> gate_up_;
  std::unique_ptr<LinearGroup> down_;
};

}  // namespace pergola
