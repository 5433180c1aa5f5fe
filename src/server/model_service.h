#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/generation_config.h"
#include "server/conversation.h"
#include "server/generation.h"
#include "server/grammar_cache.h"
#include "server/json_fields.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace pergola {

/// Most of what a request may ask for.
struct RequestLimits {
  std::size_t messages = 2048;
  std::size_t stop_strings = 16;
  std::size_t stop_string_bytes = 256;
  std::int64_t answers = 32;  ///< prompts times n
  std::int64_t top_logprobs = 20;
  std::size_t logit_biases = 1024;
  std::size_t tools = 256;
  std::int64_t whole_logprobs = 262'144;  ///< tokens times alternatives in a reply that is not a stream
};

/// The model as handlers see it. Immutable after construction; safe to use from several threads.
class ModelService {
 public:
  /// `queue` outlives it. Without `chat` conversations are refused.
  ModelService(const ModelFacts& model, RequestQueue& queue, Tokenizer tokenizer, std::optional<ChatTemplate> chat,
               const GenerationConfig& generation, std::string name, const RequestLimits& limits);

  const std::string& name() const { return name_; }
  std::int64_t created() const { return created_; }
  const ModelFacts& model() const { return context_.model; }
  const RequestQueue& queue() const { return context_.queue; }
  const Tokenizer& tokenizer() const { return context_.tokenizer; }
  const RequestLimits& limits() const { return limits_; }

  /// Reads "model"; another name than this model's is a 404.
  void check_model(JsonFields& fields) const;

  /// Reads sampling members over the model's defaults, stop strings and n. What of them a protocol does not have stays
  /// unread.
  void read_sampling(JsonFields& fields, GenerationCall& call) const;
  /// "stop" (`name`): a string or an array of them.
  std::vector<std::string> read_stop(JsonFields& fields, std::string_view name) const;

  /// Puts a conversation into the call: prompt, parser, rule. Throws ApiError for what the model cannot do.
  void prepare(const Conversation& conversation, GenerationCall& call) const;

  /// Refuses logprobs that would make a reply as a whole too large.
  void check_size(const GenerationCall& call, bool stream) const;

  void run(GenerationCall call, std::unique_ptr<Reply> reply, Exchange& exchange) const {
    run_generation(context_, std::move(call), std::move(reply), exchange);
  }

 private:
  std::optional<Grammar> grammar_of(const Conversation& conversation, bool with_tools) const;

  Tokenizer tokenizer_;
  GenerationContext context_;
  std::optional<ChatTemplate> chat_;
  mutable GrammarCache grammars_;
  SamplingOptions defaults_;
  std::string name_;
  RequestLimits limits_;
  std::int64_t created_;
};

}  // namespace pergola
