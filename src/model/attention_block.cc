#include "model/attention_block.h"

#include <array>

namespace pergola {

AttentionBlock::AttentionBlock(const AttentionBlueprint& blueprint, const BlockContext& context)
    : backend_(context.backend), scratch_(context.scratch), layer_(blueprint.layer) {
  if (blueprint.q_norm) layer_.q_norm = context.parameters.add(*blueprint.q_norm, blueprint.name);
  if (blueprint.k_norm) layer_.k_norm = context.parameters.add(*blueprint.k_norm, blueprint.name);
  const auto pairs = static_cast<std::int64_t>(blueprint.inv_freq.size());
  if (pairs > 0) layer_.rope.inv_freq = context.parameters.add(blueprint.inv_freq, 1, pairs, blueprint.name);
  if (blueprint.sinks) layer_.sinks = context.parameters.add(*blueprint.sinks, blueprint.name);
  ScratchLayout layout(backend_.max_rows());
  tensors_ = lay_out(blueprint, backend_, layout);
  context.scratch.require(layout);
  qkv_ = backend_.bind_linears(std::array{blueprint.q, blueprint.k, blueprint.v});
  output_ = backend_.bind_linears(std::array{blueprint.o});
  backend_.prepare(layer_);
}

AttentionBlock::Intermediates AttentionBlock::lay_out(const AttentionBlueprint& blueprint, const Backend& backend,
                                                      ScratchLayout& layout) {
  const DType type = backend.activation_type();
  Intermediates tensors;
  tensors.q = layout.add(blueprint.q.out_features, type);
  tensors.k = layout.add(blueprint.k.out_features, type);
  tensors.v = layout.add(blueprint.v.out_features, type);
  tensors.mixed = layout.add(blueprint.o.in_features, type);
  return tensors;
}

std::int64_t AttentionBlock::ring_rows(const Attention& layer, const Backend& backend) {
  return layer.window > 0 ? (layer.window + backend.max_rows()) / 2 * 2 : 0;
}

std::size_t AttentionBlock::cache_bytes(const AttentionBlueprint& blueprint, const Backend& backend) {
  return static_cast<std::size_t>(2 * backend.cache_columns(blueprint.layer)) * size_of(backend.cache_type());
}

void AttentionBlock::allocate_cache(const CachePlan& plan) {
  const std::int64_t ring = ring_rows(layer_, backend_);
  const std::int64_t rows = ring > 0 ? plan.slots * ring : plan.pages * plan.page_size;
  const std::int64_t width = backend_.cache_columns(layer_);
  const DType type = backend_.cache_type();
  const std::size_t bytes = static_cast<std::size_t>(rows * width) * size_of(type);
  keys_ = backend_.allocate(bytes, "the KV cache");
  values_ = backend_.allocate(bytes, "the KV cache");
  cache_ = {
      {keys_.get(), 0, type, rows, width, width}, {values_.get(), 0, type, rows, width, width}, plan.page_size, ring};
}

/// A ring is copied whole, as one row of 32-bit words: an even number of tokens fills them in every cache type.
void AttentionBlock::copy_slot(const Tensor& from, std::int64_t to) {
  if (cache_.ring == 0) return;
  for (const Tensor* part : {&cache_.keys, &cache_.values}) {
    const std::int64_t words = cache_.ring * part->columns * static_cast<std::int64_t>(size_of(part->dtype)) / 4;
    const Tensor rings{part->buffer, part->offset, DType::f32, part->rows / cache_.ring, words, words};
    backend_.gather_rows(rings, from, rings.slice_rows(to, 1));
  }
}

void AttentionBlock::forward(const Tensor& x, const Batch& batch, const Tensor& out) {
  const Tensor q = scratch_.view(tensors_.q, batch.rows);
  const Tensor k = scratch_.view(tensors_.k, batch.rows);
  const Tensor v = scratch_.view(tensors_.v, batch.rows);
  const Tensor mixed = scratch_.view(tensors_.mixed, batch.rows);
  backend_.linear(*qkv_, x, std::array{q, k, v});
  backend_.attention(layer_, q, k, v, cache_, batch, mixed);
  backend_.linear(*output_, mixed, std::array{out});
}

}  // namespace pergola
