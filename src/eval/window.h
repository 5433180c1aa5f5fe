#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"

namespace pergola {

/// Told of the logits after the token at `position`, positions in order. The span is valid during the call.
using OnLogits = std::function<void(std::int64_t position, std::span<const float> logits)>;

/// Runs `tokens` through a fresh sequence and reports the logits of every position: all columns, none masked. Throws
/// Error when the window is longer than the context or holds an id that the model does not have.
void run_window(Engine& engine, std::span<const std::int32_t> tokens, const OnLogits& on_logits);

}  // namespace pergola
