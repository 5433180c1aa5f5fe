#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace pergola {

/// One text to write.
struct GenerationRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t max_tokens = 0;  ///< 0: until the model ends its text or the context is full
  SamplingOptions sampling;
  std::vector<std::int32_t> stop_tokens;
  std::shared_ptr<const TokenMask> mask;  ///< ids that may be sampled, of the model's vocab_size; null: all
};

enum class FinishReason : std::uint8_t {
  stop_token,
  max_tokens,
  context_full,
  cancelled,
  listener,  ///< whoever reads the tokens had enough
  failed
};
inline constexpr std::size_t kFinishReasons = 6;

/// "the model ended its text", for people.
std::string_view describe(FinishReason reason);

/// What came of a request and how long it took.
struct Generation {
  std::vector<std::int32_t> tokens;  ///< without the stop token
  FinishReason finish = FinishReason::stop_token;
  std::int64_t prompt_tokens = 0;
  double prefill_seconds = 0;
  std::int64_t decode_steps = 0;  ///< tokens after the first: each took one step
  double decode_seconds = 0;

  double prefill_rate() const { return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0; }
  double decode_rate() const { return decode_seconds > 0 ? static_cast<double>(decode_steps) / decode_seconds : 0; }
};

/// Told of every token as soon as it is known.
using OnToken = std::function<void(std::int32_t token)>;

/// Throws Error for a prompt that is empty or longer than the context, and for ids that the model does not have.
void check_prompt(const Engine& engine, std::span<const std::int32_t> prompt);

/// Writes one text in a sequence of its own. `cancelled` is looked at before every step. Throws Error for an empty
/// prompt, for one that is longer than the context, and for ids that the model does not have.
Generation generate(Engine& engine, const GenerationRequest& request, const OnToken& on_token,
                    const std::atomic<bool>& cancelled);

}  // namespace pergola
