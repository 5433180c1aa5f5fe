#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace pergola {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void check_prompt(const Engine& engine, std::span<const std::int32_t> prompt) {
  if (prompt.empty()) fail({}, "the prompt is empty");
  const std::int64_t context = engine.memory().context;
  if (static_cast<std::int64_t>(prompt.size()) > context) {
    fail({}, "the prompt has {} tokens, more than the context of {}; --context sets it, the model's own limit is {}",
         prompt.size(), context, engine.info().max_positions);
  }
  engine.check_ids(prompt);
}

std::string_view describe(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
      return "the model ended its text";
    case FinishReason::max_tokens:
      return "the limit of tokens was reached";
    case FinishReason::context_full:
      return "the context is full";
    case FinishReason::cancelled:
      return "interrupted";
    case FinishReason::listener:
      return "its reader had enough";
    case FinishReason::failed:
      return "an error";
  }
  return "";
}

Generation generate(Engine& engine, const GenerationRequest& request, const OnToken& on_token,
                    const std::atomic<bool>& cancelled) {
  check_prompt(engine, request.prompt);
  Generation result;
  result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room =
      engine.memory().context - result.prompt_tokens + 1;  // the last token needs no place in the cache
  const std::int64_t most = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;
  result.tokens.reserve(static_cast<std::size_t>(most));
  std::vector<float> logits(static_cast<std::size_t>(engine.info().vocab_size));
  Sampler sampler(request.sampling, engine.info().vocab_size, request.mask);
  sampler.begin(request.prompt);

  Sequence sequence = engine.start();
  sequence.append(request.prompt);
  Clock::time_point start = Clock::now();
  engine.prefill(sequence, cancelled);
  result.prefill_seconds = seconds_since(start);

  start = Clock::now();
  for (;;) {
    if (cancelled.load(std::memory_order_relaxed)) {
      result.finish = FinishReason::cancelled;
      break;
    }
    engine.read_logits(0, logits);
    const std::int32_t token = sampler.sample(logits);
    if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) != request.stop_tokens.end()) {
      result.finish = FinishReason::stop_token;
      break;
    }
    sampler.accept(token);
    result.tokens.push_back(token);
    on_token(token);
    if (static_cast<std::int64_t>(result.tokens.size()) == most) {
      result.finish = most == request.max_tokens ? FinishReason::max_tokens : FinishReason::context_full;
      break;
    }
    sequence.append(token);
    const StepPart part{&sequence, 1, 1};
    engine.step({&part, 1});
    ++result.decode_steps;
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace pergola
