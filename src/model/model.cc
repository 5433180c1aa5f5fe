#include "model/model.h"

#include <cassert>

#include "model/architectures.h"
#include "model/stored_spans.h"

namespace pergola {

ModelPlan Model::plan(const Checkpoint& checkpoint, const Backend& backend) {
  return plan_model(read_blueprint(checkpoint), backend);
}

std::unique_ptr<Model> Model::load(const Checkpoint& checkpoint, Backend& backend, const Progress& progress) {
  const ModelBlueprint blueprint = read_blueprint(checkpoint);
  std::unique_ptr<Model> model(new Model(blueprint, backend));
  model->bind(blueprint, checkpoint, progress);
  return model;
}

Model::Model(const ModelBlueprint& blueprint, Backend& backend)
    : backend_(backend),
      info_{blueprint.architecture,  blueprint.vocab_size,
            blueprint.hidden_size,   static_cast<std::int64_t>(blueprint.layers.size()),
            blueprint.max_positions, blueprint.long_rope_left_out},
      plan_(plan_model(blueprint, backend)),
      parameters_(backend) {}

void Model::bind(const ModelBlueprint& blueprint, const Checkpoint& checkpoint, const Progress& progress) {
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

  embedding_ = backend_.bind_embedding(blueprint.embedding);
  embedding_scale_ = blueprint.embedding_scale;
  bound(stored_spans(blueprint.embedding));
  for (const LayerBlueprint& layer : blueprint.layers) {
    for (const LinearView* linear : linears_of(layer)) checkpoint.check_marker(*linear);
    layers_.emplace_back(layer, context);
    bound(stored_spans(layer));
  }
  final_norm_ = parameters_.add(blueprint.final_norm, "a norm");
  checkpoint.check_marker(blueprint.head);
  head_ = std::make_unique<Head>(blueprint.head, blueprint.logit_cap, backend_);
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
    if (layer.mixer_output_norm) backend_.rms_norm(*layer.mixer_output_norm, delta, delta);
    backend_.add_rms_norm(layer.post_norm, residual, delta, normed);
    layer.feed_forward->forward(normed, delta);
    if (layer.feed_forward_output_norm) backend_.rms_norm(*layer.feed_forward_output_norm, delta, delta);
    const RmsNorm& next = i + 1 < layers_.size() ? layers_[i + 1].input_norm : final_norm_;
    backend_.add_rms_norm(next, residual, delta, normed);
  }
  if (logits.rows > 0) head_->forward(normed, logit_rows, logits);
}

}  // namespace pergola
