#include "model/delta_net_block.h"

#include <array>

namespace pergola {

namespace {

std::int64_t window_width(const DeltaNet& layer) {
  return (layer.kernel - 1) * layer.channels();
}

std::int64_t state_width(const DeltaNet& layer) {
  return std::int64_t{layer.value_heads} * layer.key_dim * layer.value_dim;
}

}  // namespace

DeltaNetBlock::DeltaNetBlock(const DeltaNetBlueprint& blueprint, const BlockContext& context)
    : backend_(context.backend), scratch_(context.scratch), layer_(blueprint.layer) {
  layer_.conv_weight = context.parameters.add(blueprint.conv_weight, blueprint.name);
  layer_.a_log = context.parameters.add(blueprint.a_log, blueprint.name);
  layer_.dt_bias = context.parameters.add(blueprint.dt_bias, blueprint.name);
  layer_.norm = context.parameters.add(blueprint.norm, blueprint.name);
  ScratchLayout layout(backend_.max_rows());
  tensors_ = lay_out(blueprint, backend_, layout);
  context.scratch.require(layout);
  projections_ = backend_.bind_linears(std::array{blueprint.qkv, blueprint.z, blueprint.b, blueprint.a});
  output_ = backend_.bind_linears(std::array{blueprint.out});
  backend_.prepare(layer_);
}

DeltaNetBlock::Intermediates DeltaNetBlock::lay_out(const DeltaNetBlueprint& blueprint, const Backend& backend,
                                                    ScratchLayout& layout) {
  Intermediates tensors;
  tensors.qkv = layout.add(blueprint.qkv.out_features, DType::f32);
  tensors.z = layout.add(blueprint.z.out_features, DType::f32);
  tensors.b = layout.add(blueprint.b.out_features, DType::f32);
  tensors.a = layout.add(blueprint.a.out_features, DType::f32);
  tensors.mixed = layout.add(blueprint.out.in_features, backend.activation_type());
  return tensors;
}

std::size_t DeltaNetBlock::slot_bytes(const DeltaNet& layer) {
  return static_cast<std::size_t>(window_width(layer) + state_width(layer)) * sizeof(float);
}

void DeltaNetBlock::allocate_cache(const CachePlan& plan) {
  const auto allocate = [&](std::unique_ptr<Buffer>& buffer, std::int64_t width) {
    buffer = backend_.allocate(static_cast<std::size_t>(plan.slots * width) * sizeof(float), "recurrent states");
    return Tensor{buffer.get(), 0, DType::f32, plan.slots, width, width};
  };
  states_.window = allocate(window_, window_width(layer_));
  states_.state = allocate(state_, state_width(layer_));
}

void DeltaNetBlock::reset_slot(std::int64_t slot) {
  backend_.fill_zero(states_.window.slice_rows(slot, 1));
  backend_.fill_zero(states_.state.slice_rows(slot, 1));
}

void DeltaNetBlock::copy_slot(const Tensor& from, std::int64_t to) {
  backend_.gather_rows(states_.window, from, states_.window.slice_rows(to, 1));
  backend_.gather_rows(states_.state, from, states_.state.slice_rows(to, 1));
}

void DeltaNetBlock::forward(const Tensor& x, const Batch& batch, const Tensor& out) {
  const Tensor qkv = scratch_.view(tensors_.qkv, batch.rows);
  const Tensor z = scratch_.view(tensors_.z, batch.rows);
  const Tensor b = scratch_.view(tensors_.b, batch.rows);
  const Tensor a = scratch_.view(tensors_.a, batch.rows);
  const Tensor mixed = scratch_.view(tensors_.mixed, batch.rows);
  backend_.linear(*projections_, x, std::array{qkv, z, b, a});
  backend_.delta_net(layer_, qkv, z, b, a, states_, batch, mixed);
  backend_.linear(*output_, mixed, std::array{out});
}

}  // namespace pergola
