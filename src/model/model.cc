#include "model/model.h"

#include <cassert>

#include "model/architectures.h"
#include "model/stored_spans.h"

namespace pergola {

ModelPlan Model::plan(const Checkpoint& checkpoint, const Backend& backend) {
  return plan_model(read_blueprint(checkpoint), backend);
}

std::unique_ptr<Model> Model::load(const Checkpoint& checkpoint, Backend& backend, const Progress& progress,
                                   const RankShare* share) {
  const ModelBlueprint blueprint = read_blueprint(checkpoint);
  std::unique_ptr<Model> model(new Model(blueprint, backend, share));
  model->bind(blueprint, checkpoint, share, progress);
  return model;
}

Model::Model(const ModelBlueprint& blueprint, Backend& backend, const RankShare* share)
    : backend_(backend),
      info_{blueprint.architecture,  blueprint.vocab_size,
            blueprint.hidden_size,   static_cast<std::int64_t>(blueprint.layers.size()),
            blueprint.max_positions, blueprint.long_rope_left_out},
      plan_(plan_model(share ? shard_headers(blueprint, share->plan, share->communicator.rank()) : blueprint, backend)),
      parameters_(backend),
      communicator_(share ? &share->communicator : nullptr) {}

void Model::bind(const ModelBlueprint& blueprint, const Checkpoint& checkpoint, const RankShare* share,
                 const Progress& progress) {
  const BlockContext context{backend_, parameters_, scratch_};
  std::uint64_t total = total_bytes(stored_spans(blueprint.embedding)) + total_bytes(stored_spans(blueprint.head));
  for (const LayerBlueprint& layer : blueprint.layers) total += total_bytes(stored_spans(layer));
  std::uint64_t done = 0;
  const auto bound = [&](const StoredSpans& spans) {
    if (!backend_.keeps_views()) {
      for (const std::span<const std::byte> span : spans) checkpoint.release_pages(span);
    }
    done += total_bytes(spans);
    if (progress) progress("loading weights", done, total);
  };
  // One layer's slices at a time: those that were copied go when the backend has its own copy.
  const auto with_cutter = [&](const auto& work) {
    ShardCutter cutter(checkpoint.folder().string(), ShardCutter::Use::weights);
    work(cutter);
    if (share && backend_.keeps_views()) slices_.push_back(std::move(cutter));
  };

  embedding_ = backend_.bind_embedding(blueprint.embedding);
  embedding_scale_ = blueprint.embedding_scale;
  bound(stored_spans(blueprint.embedding));
  for (std::size_t i = 0; i < blueprint.layers.size(); ++i) {
    const LayerBlueprint& layer = blueprint.layers[i];
    for (const LinearView* linear : linears_of(layer)) checkpoint.check_marker(*linear);
    with_cutter([&](ShardCutter& cutter) {
      if (share) {
        layers_.emplace_back(cutter.layer(layer, share->plan.layers[i], share->communicator.rank()), context);
      } else {
        layers_.emplace_back(layer, context);
      }
    });
    bound(stored_spans(layer));
  }
  final_norm_ = parameters_.add(blueprint.final_norm, "a norm");
  checkpoint.check_marker(blueprint.head);
  with_cutter([&](ShardCutter& cutter) {
    if (share) {
      const IndexRange own = share->plan.vocabulary[static_cast<std::size_t>(share->communicator.rank())];
      head_ = std::make_unique<Head>(cutter.outputs(blueprint.head, own), blueprint.logit_cap, backend_);
      head_->share(share->plan.vocabulary, share->communicator);
    } else {
      head_ = std::make_unique<Head>(blueprint.head, blueprint.logit_cap, backend_);
    }
  });
  bound(stored_spans(blueprint.head));
  allocate_activations();
  backend_.synchronize();
}

void Model::allocate_activations() {
  scratch_.allocate(backend_);
  residual_ = activation(DType::f32);
  normed_ = activation(backend_.activation_type());
  delta_ = activation(DType::f32);
}

Tensor Model::activation(DType type) {
  const std::int64_t rows = backend_.max_rows();
  buffers_.push_back(
      backend_.allocate(static_cast<std::size_t>(rows * info_.hidden_size) * size_of(type), "activations"));
  return {buffers_.back().get(), 0, type, rows, info_.hidden_size, info_.hidden_size};
}

void Model::allocate_caches(const CachePlan& plan) {
  for (Layer& layer : layers_) layer.mixer->allocate_cache(plan);
}

void Model::reset_slot(std::int64_t slot) {
  for (Layer& layer : layers_) layer.mixer->reset_slot(slot);
}

void Model::copy_slot(const Tensor& from, std::int64_t to) {
  for (Layer& layer : layers_) layer.mixer->copy_slot(from, to);
}

/// What a block adds is the sum of what the ranks' slices of it add.
void Model::add_over_ranks(const Tensor& delta) {
  if (communicator_ != nullptr) communicator_->all_reduce(delta);
}

void Model::forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits) {
  assert(batch.rows >= 1 && batch.rows <= backend_.max_rows());
  const Tensor residual = residual_.slice_rows(0, batch.rows);
  const Tensor normed = normed_.slice_rows(0, batch.rows);
  const Tensor delta = delta_.slice_rows(0, batch.rows);
  backend_.embed(*embedding_, batch.tokens, embedding_scale_, residual);
  backend_.rms_norm(layers_.front().input_norm, residual, normed);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    layer.mixer->forward(normed, batch, delta);
    add_over_ranks(delta);
    if (layer.mixer_output_norm) backend_.rms_norm(*layer.mixer_output_norm, delta, delta);
    backend_.add_rms_norm(layer.post_norm, residual, delta, normed);
    layer.feed_forward->forward(normed, delta);
    add_over_ranks(delta);
    if (layer.feed_forward_output_norm) backend_.rms_norm(*layer.feed_forward_output_norm, delta, delta);
    const RmsNorm& next = i + 1 < layers_.size() ? layers_[i + 1].input_norm : final_norm_;
    backend_.add_rms_norm(next, residual, delta, normed);
  }
  if (logits.rows > 0) head_->forward(normed, logit_rows, logits);
}

}  // namespace pergola
