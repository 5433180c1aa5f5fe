#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/checkpoint.h"
#include "support/tiny_qwen.h"

namespace pergola::testing {

/// Logits [tokens, vocab] of a whole prompt from the formulas of the architecture, in double, over dense weights.
/// Shares nothing with the model and backend rooms: no caches, no steps, every layer sees the whole prompt at once; the
/// model's shape comes from `model`, not from config.json.
std::vector<double> oracle_logits(const Checkpoint& checkpoint, const TinyQwen& model,
                                  std::span<const std::int32_t> tokens);

}  // namespace pergola::testing
