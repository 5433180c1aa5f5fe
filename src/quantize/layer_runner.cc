#include "quantize/layer_runner.h"

#include <array>
#include <cassert>
#include <functional>
#include <numeric>

#include "base/half.h"
#include "model/layer.h"
#include "trellis/decode.h"

namespace pergola {

namespace {

/// Buffers and the batch of one sequence at a time: slot 0, one page as long as the sequence.
class SequenceStep {
 public:
  SequenceStep(Backend& backend, std::int64_t length, std::int64_t width) : backend_(backend) {
    residual = tensor(DType::f32, length, width);
    normed = tensor(backend.activation_type(), length, width);
    delta = tensor(DType::f32, length, width);
    batch.rows = batch.max_rows_per_sequence = length;
    batch.sequences = 1;
    batch.tokens = integers(std::vector<std::int32_t>(static_cast<std::size_t>(length)));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(length));
    std::iota(positions.begin(), positions.end(), 0);
    batch.positions = integers(positions);
    batch.row_sequence = integers(std::vector<std::int32_t>(static_cast<std::size_t>(length)));
    batch.row_start = integers({0, static_cast<std::int32_t>(length)});
    batch.slots = integers({0});
    batch.page_table = integers({0});
  }

  Tensor residual;
  Tensor normed;
  Tensor delta;
  Batch batch;

 private:
  Tensor tensor(DType type, std::int64_t rows, std::int64_t columns) {
    buffers_.push_back(backend_.allocate(static_cast<std::size_t>(rows * columns) * size_of(type), "calibration"));
    return {buffers_.back().get(), 0, type, rows, columns, columns};
  }

  Tensor integers(const std::vector<std::int32_t>& values) {
    const Tensor made = tensor(DType::i32, 1, std::ssize(values));
    backend_.upload(made, values.data());
    return made;
  }

  Backend& backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace

HiddenStates embed_tokens(const ModelBlueprint& model, std::span<const std::int32_t> tokens, std::int64_t length) {
  const DenseView& embedding = model.embedding;
  assert(std::ssize(tokens) % length == 0);
  HiddenStates states{std::ssize(tokens) / length, length, embedding.columns, {}};
  states.values.reserve(tokens.size() * static_cast<std::size_t>(embedding.columns));
  for (std::int32_t token : tokens) {
    assert(token >= 0 && token < embedding.rows);
    for (std::int64_t i = 0; i < embedding.columns; ++i)
      states.values.push_back(model.embedding_scale * dense_element(embedding, token * embedding.columns + i));
  }
  return states;
}

void run_layer(Backend& backend, const LayerBlueprint& blueprint, HiddenStates& states) {
  assert(states.length <= backend.max_rows());
  DeviceParameters parameters(backend);
  Scratch scratch;
  const Layer layer(blueprint, {backend, parameters, scratch});
  scratch.allocate(backend);
  layer.mixer->allocate_cache({1, states.length, 1});
  const SequenceStep step(backend, states.length, states.width);
  for (std::int64_t index = 0; index < states.sequences; ++index) {
    layer.mixer->reset_slot(0);
    backend.upload(step.residual, states.sequence(index));
    backend.rms_norm(layer.input_norm, step.residual, step.normed);
    layer.mixer->forward(step.normed, step.batch, step.delta);
    if (layer.mixer_output_norm) backend.rms_norm(*layer.mixer_output_norm, step.delta, step.delta);
    backend.add_rms_norm(layer.post_norm, step.residual, step.delta, step.normed);
    layer.feed_forward->forward(step.normed, step.delta);
    if (layer.feed_forward_output_norm) backend.rms_norm(*layer.feed_forward_output_norm, step.delta, step.delta);
    backend.add_rms_norm(layer.post_norm, step.residual, step.delta, step.normed);  // for its addition
    backend.download(states.sequence(index), step.residual);
  }
}

void run_final_norm(Backend& backend, const NormBlueprint& norm, HiddenStates& states,
                    const std::function<void(std::span<const float> rows)>& visit) {
  DeviceParameters parameters(backend);
  const RmsNorm bound = parameters.add(norm, "the final norm");
  const std::size_t bytes = static_cast<std::size_t>(states.length * states.width) * sizeof(float);
  const auto in = backend.allocate(bytes, "calibration"), out = backend.allocate(bytes, "calibration");
  const Tensor x{in.get(), 0, DType::f32, states.length, states.width, states.width},
      y{out.get(), 0, DType::f32, states.length, states.width, states.width};
  std::vector<float> rows(static_cast<std::size_t>(states.length * states.width));
  for (std::int64_t index = 0; index < states.sequences; ++index) {
    backend.upload(x, states.sequence(index));
    backend.rms_norm(bound, x, y);
    backend.download(rows.data(), y);
    visit(rows);
  }
}

std::vector<float> run_head(Backend& backend, const ModelBlueprint& model, HiddenStates& states) {
  const LinearView& head = model.head;
  const auto group = backend.bind_linears(std::array{head});
  const std::int64_t rows = states.length, width = states.width, vocabulary = head.out_features;
  const auto in = backend.allocate(static_cast<std::size_t>(rows * width) * sizeof(float), "calibration"),
             out = backend.allocate(static_cast<std::size_t>(rows * vocabulary) * sizeof(float), "logits");
  const DType type = backend.activation_type();
  const Tensor x{in.get(), 0, type, rows, width, width}, y{out.get(), 0, DType::f32, rows, vocabulary, vocabulary};
  std::vector<float> logits(static_cast<std::size_t>(states.sequences * rows * vocabulary));
  std::vector<Half> halves;
  float* to = logits.data();
  run_final_norm(backend, model.final_norm, states, [&](std::span<const float> normed) {
    if (type == DType::f32) {
      backend.upload(x, normed.data());
    } else {
      halves.clear();
      for (float value : normed) halves.push_back(to_half(value));
      backend.upload(x, halves.data());
    }
    backend.linear(*group, x, std::array{y});
    if (model.logit_cap > 0) backend.soft_cap(y, model.logit_cap);
    backend.download(to, y);
    to += rows * vocabulary;
  });
  return logits;
}

}  // namespace pergola
