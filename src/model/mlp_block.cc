#include "model/mlp_block.h"

#include <array>

namespace pergola {

MlpBlock::MlpBlock(const MlpBlueprint& blueprint, const BlockContext& context)
    : backend_(context.backend), scratch_(context.scratch), activation_(blueprint.activation) {
  ScratchLayout layout(backend_.max_rows());
  tensors_ = lay_out(blueprint, backend_, layout);
  context.scratch.require(layout);
  gate_up_ = backend_.bind_linears(std::array{blueprint.gate, blueprint.up});
  down_ = backend_.bind_linears(std::array{blueprint.down});
}

MlpBlock::Intermediates MlpBlock::lay_out(const MlpBlueprint& blueprint, const Backend& backend,
                                          ScratchLayout& layout) {
  Intermediates tensors;
  tensors.gate = layout.add(blueprint.gate.out_features, backend.activation_type());
  tensors.up = layout.add(blueprint.up.out_features, backend.activation_type());
  return tensors;
}

void MlpBlock::forward(const Tensor& x, const Tensor& out) {
  const Tensor gate = scratch_.view(tensors_.gate, x.rows);
  const Tensor up = scratch_.view(tensors_.up, x.rows);
  backend_.linear(*gate_up_, x, std::array{gate, up});
  backend_.gated_activation(activation_, gate, up, gate);
  backend_.linear(*down_, gate, std::array{out});
}

}  // namespace pergola
