#pragma once

#include <cstdint>
#include <span>

namespace pergola {

/// What one text may still become: a grammar, a schema. Belongs to one request; used by the engine's thread alone.
class SamplingRule {
 public:
  virtual ~SamplingRule() = default;

  /// Sets the logits of tokens that may not come next to minus infinity. `logits` has an element for every id of the
  /// model's vocabulary.
  virtual void apply(std::span<float> logits) = 0;

  /// Tells it that `token`, which it allowed, was taken.
  virtual void accept(std::int32_t token) = 0;
};

}  // namespace pergola
