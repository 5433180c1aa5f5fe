#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/blueprint.h"

namespace pergola {

/// The hidden states of calibration sequences between two layers, on the host.
struct HiddenStates {
  std::int64_t sequences = 0;
  std::int64_t length = 0;  ///< tokens of every sequence
  std::int64_t width = 0;
  std::vector<float> values;  ///< [sequences, length, width]

  float* sequence(std::int64_t index) { return values.data() + index * length * width; }
};

/// The embedded tokens of `sequences` sequences of `length` tokens each.
HiddenStates embed_tokens(const ModelBlueprint& model, std::span<const std::int32_t> tokens, std::int64_t length);

/// Binds one layer and replaces every sequence's hidden states by the layer's output, one sequence a step (length <=
/// backend.max_rows()).
void run_layer(Backend& backend, const LayerBlueprint& layer, HiddenStates& states);

/// Applies the final norm to every row and gives it to `visit` a sequence at a time: f32 [length, width] on the host.
void run_final_norm(Backend& backend, const NormBlueprint& norm, HiddenStates& states,
                    const std::function<void(std::span<const float> rows)>& visit);

/// Logits of every row: [sequences * length, vocabulary] on the host.
std::vector<float> run_head(Backend& backend, const ModelBlueprint& model, HiddenStates& states);

}  // namespace pergola
