#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/served_request.h"
#include "support/checkpoint_writer.h"
#include "support/tiny_qwen.h"

namespace pergola::testing {

/// A tiny random model as an engine. The reference backend computes a row alike in every batch, to the bit.
struct TinyEngine {
  explicit TinyEngine(const MemoryOptions& memory, std::int64_t max_rows = 64, const std::string& backend = "reference",
                      const TinyQwen& tiny = small()) {
    tiny.write(folder.path());
    EngineOptions options{.backend = backend, .memory = memory};
    options.device.max_rows = max_rows;
    options.device.threads = 1;
    engine = std::make_unique<Engine>(open_model(Checkpoint(folder.path()), options), Progress{});
  }

  static TinyQwen small() {
    TinyQwen tiny;
    tiny.hidden = 64;
    tiny.vocab = 97;
    tiny.full_attention = {false, true};
    tiny.heads = 2;
    tiny.kv_heads = 1;
    tiny.head_dim = 32;
    tiny.key_heads = 1;
    tiny.value_heads = 2;
    tiny.key_dim = 16;
    tiny.value_dim = 16;
    tiny.intermediate = 64;
    return tiny;
  }

  TempFolder folder;
  std::unique_ptr<Engine> engine;
};

/// Keeps what a request yields.
struct Collector final : RequestListener {
  bool on_token(const SampledToken& token) override {
    if (token.is_stop) return true;
    tokens.push_back(token.token);
    logprobs.push_back(token.logprob);
    top.emplace_back(token.top.begin(), token.top.end());
    return static_cast<std::int64_t>(tokens.size()) != enough;
  }
  void on_end(const RequestOutcome& result) override {
    ++ends;
    outcome = result;
  }

  std::int64_t enough = -1;  ///< tokens after which it has seen enough
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  RequestOutcome outcome;
  int ends = 0;
};

inline ServedRequest greedy_request(std::vector<std::int32_t> prompt, std::int64_t max_tokens,
                                    std::shared_ptr<RequestListener> listener) {
  ServedRequest request;
  request.generation.prompt = std::move(prompt);
  request.generation.max_tokens = max_tokens;
  request.generation.sampling.temperature = 0;
  request.listener = std::move(listener);
  return request;
}

}  // namespace pergola::testing
