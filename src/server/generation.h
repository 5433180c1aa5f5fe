#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request_queue.h"
#include "server/reply.h"
#include "text/chat/output_parser.h"
#include "text/tokenizer.h"

namespace pergola {

/// What a request asks of the engine, whatever its protocol.
struct GenerationCall {
  std::vector<std::vector<std::int32_t>> prompts;
  std::int64_t answers_per_prompt = 1;
  std::int64_t max_tokens = 0;  ///< 0: until the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::int64_t top_logprobs = -1;  ///< -1: none
  bool ignore_stop_tokens = false;
  bool keep_special_tokens = false;                            ///< in the text that the parser gets
  std::function<std::unique_ptr<OutputParser>()> make_parser;  ///< null: everything is text
  std::function<std::unique_ptr<SamplingRule>()> make_rule;    ///< null: none
  std::string tool_call_id = "call_";                          ///< what ids of tool calls start with

  std::size_t answers() const { return prompts.size() * static_cast<std::size_t>(answers_per_prompt); }
};

/// Throws ApiError where a protocol has no place for several answers.
void require_one_answer(const GenerationCall& call);

/// What requests must know of the model.
struct ModelFacts {
  std::int64_t vocab_size = 0;     ///< of its logits
  std::int64_t context = 0;        ///< most tokens of a prompt and its answer here
  std::int64_t max_positions = 0;  ///< the model's own limit
};

/// What every generation needs.
struct GenerationContext {
  ModelFacts model;
  RequestQueue& queue;
  const Tokenizer& tokenizer;
  std::vector<std::int32_t> stop_tokens;
  std::shared_ptr<const TokenMask> mask;
};

/// Runs the call: the reply is told what comes of it, by the engine's thread. The answers of prompt p are p *
/// answers_per_prompt and those after it. Throws ApiError for what is wrong with the call and, with status 429, when
/// the queue is full; the reply is then not touched. A client that goes away (Exchange::abort) cancels it.
void run_generation(const GenerationContext& context, GenerationCall call, std::unique_ptr<Reply> reply,
                    Exchange& exchange);

}  // namespace pergola
