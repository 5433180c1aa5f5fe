#include "server/generation.h"

#include <algorithm>

#include "base/error.h"
#include "server/stop_strings.h"

namespace pergola {
namespace {

/// All answers to one request. Used by the engine's thread alone once it runs.
class AnswerSet final {
 public:
  AnswerSet(const GenerationContext& context, const GenerationCall& call, std::unique_ptr<Reply> reply)
      : queue_(context.queue),
        tokenizer_(context.tokenizer),
        tool_call_id_(call.tool_call_id),
        wants_tokens_(call.top_logprobs >= 0),
        answers_per_prompt_(static_cast<std::size_t>(call.answers_per_prompt)),
        left_(call.answers()),
        reply_(std::move(reply)) {
    for (std::size_t i = 0; i < call.answers(); ++i) {
      answers_.push_back({StreamDecoder(tokenizer_, !call.keep_special_tokens, call.prompts[i / answers_per_prompt_]),
                          StopStrings(call.stop), call.make_parser ? call.make_parser() : nullptr});
    }
  }

  bool on_token(std::size_t index, const SampledToken& sampled);
  void on_end(std::size_t index, const RequestOutcome& outcome);
  /// Something is wrong with this program.
  void broke(const std::string& what);
  void set_tickets(std::vector<Ticket> tickets) { tickets_ = std::move(tickets); }

 private:
  struct AnswerState {
    StreamDecoder decoder;
    StopStrings stop;
    std::unique_ptr<OutputParser> parser;
    bool called_tools = false;
  };

  AnswerPiece parsed(AnswerState& state, std::string text) const;
  AnswerPiece joined(std::vector<ChatDelta> deltas) const;
  void send(std::size_t index, AnswerPiece piece);
  TokenText describe_token(const SampledToken& sampled) const;
  void fail(const ApiError& error);

  RequestQueue& queue_;
  const Tokenizer& tokenizer_;
  std::string tool_call_id_;
  bool wants_tokens_;
  std::size_t answers_per_prompt_;
  std::size_t left_;
  std::unique_ptr<Reply> reply_;
  std::vector<AnswerState> answers_;
  std::vector<Ticket> tickets_;
  Usage usage_;
  bool failed_ = false;
};

AnswerPiece AnswerSet::parsed(AnswerState& state, std::string text) const {
  if (state.parser != nullptr) return joined(state.parser->push(text));
  return {.text = std::move(text)};
}

AnswerPiece AnswerSet::joined(std::vector<ChatDelta> deltas) const {
  AnswerPiece piece;
  for (ChatDelta& delta : deltas) {
    const auto call = static_cast<std::int64_t>(delta.call);
    switch (delta.kind) {
      case ChatDelta::Kind::reasoning:
        piece.reasoning += delta.text;
        break;
      case ChatDelta::Kind::content:
        piece.text += delta.text;
        break;
      case ChatDelta::Kind::tool_call:
        if (delta.call_id.empty()) delta.call_id = random_id(tool_call_id_);
        piece.tool_calls.push_back({.index = call, .id = std::move(delta.call_id), .name = std::move(delta.text)});
        break;
      case ChatDelta::Kind::tool_arguments:
        piece.tool_calls.push_back({.index = call, .arguments = std::move(delta.text)});
        break;
    }
  }
  return piece;
}

void AnswerSet::send(std::size_t index, AnswerPiece piece) {
  if (piece.empty()) return;
  if (!piece.reasoning.empty()) ++usage_.reasoning_tokens;
  answers_[index].called_tools |= !piece.tool_calls.empty();
  if (!failed_) reply_->piece(index, piece);
}

TokenText AnswerSet::describe_token(const SampledToken& sampled) const {
  const auto text_of = [this](std::int32_t token) { return tokenizer_.decode({&token, 1}, false); };
  TokenText text{.text = text_of(sampled.token), .logprob = sampled.logprob};
  for (const TokenLogprob& other : sampled.top) text.top.emplace_back(text_of(other.token), other.logprob);
  return text;
}

bool AnswerSet::on_token(std::size_t index, const SampledToken& sampled) {
  if (sampled.is_stop) return true;
  AnswerState& state = answers_[index];
  AnswerPiece piece = parsed(state, state.stop.push(state.decoder.push(sampled.token)));
  if (wants_tokens_) piece.tokens.push_back(describe_token(sampled));
  send(index, std::move(piece));
  return !state.stop.found();
}

void AnswerSet::fail(const ApiError& error) {
  if (failed_) return;
  failed_ = true;
  for (const Ticket ticket : tickets_) queue_.cancel(ticket);
  reply_->fail(error);
}

void AnswerSet::broke(const std::string& what) {
  fail(ApiError(500, "the answer could not be written: " + what));
}

void AnswerSet::on_end(std::size_t index, const RequestOutcome& outcome) {
  if (outcome.finish == FinishReason::failed) return fail(ApiError(500, "the engine failed: " + outcome.error));
  if (outcome.finish == FinishReason::cancelled) {
    return fail(ApiError(503, "the request was ended: the server stops or its client left"));
  }
  AnswerState& state = answers_[index];
  std::string tail = state.stop.push(state.decoder.finish());
  tail += state.stop.finish();
  AnswerPiece last = parsed(state, std::move(tail));
  send(index, std::move(last));
  if (state.parser != nullptr) send(index, joined(state.parser->finish()));
  const bool cut = outcome.finish == FinishReason::max_tokens || outcome.finish == FinishReason::context_full;
  AnswerEnding ending{.stop_string = state.stop.found()};
  ending.end = cut && !ending.stop_string ? AnswerEnd::length
               : state.called_tools       ? AnswerEnd::tool_calls
                                          : AnswerEnd::stop;
  if (!failed_) reply_->end_answer(index, ending);
  if (index % answers_per_prompt_ == 0) {
    usage_.prompt_tokens += outcome.prompt_tokens;
    usage_.cached_tokens += outcome.cached_tokens;
  }
  usage_.answer_tokens += outcome.answer_tokens;
  if (--left_ == 0 && !failed_) reply_->end(usage_);
}

class AnswerListener final : public RequestListener {
 public:
  AnswerListener(std::shared_ptr<AnswerSet> generation, std::size_t index)
      : generation_(std::move(generation)), index_(index) {}
  bool on_token(const SampledToken& token) override {
    try {
      return generation_->on_token(index_, token);
    } catch (const std::exception& error) {  // it must not end the engine's thread
      generation_->broke(error.what());
      return false;
    }
  }
  void on_end(const RequestOutcome& outcome) override {
    try {
      generation_->on_end(index_, outcome);
    } catch (const std::exception& error) {
      generation_->broke(error.what());
    }
  }

 private:
  std::shared_ptr<AnswerSet> generation_;
  std::size_t index_;
};

void check(const ModelFacts& model, const GenerationCall& call) {
  for (const auto& prompt : call.prompts) {
    if (prompt.empty()) throw ApiError(400, "the prompt is empty");
    if (static_cast<std::int64_t>(prompt.size()) > model.context) {
      throw ApiError(400,
                     fmt::format("the prompt has {} tokens, more than the context of {} (the model's own limit is {})",
                                 prompt.size(), model.context, model.max_positions),
                     "", "context_length_exceeded");
    }
    for (const std::int32_t id : prompt) {
      if (id >= 0 && id < model.vocab_size) continue;
      throw ApiError(400, fmt::format("token {} is outside the model's vocabulary of {}", id, model.vocab_size));
    }
  }
  try {
    validate(call.sampling, model.vocab_size);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), error.where().field);
  }
}

}  // namespace

void run_generation(const GenerationContext& context, GenerationCall call, std::unique_ptr<Reply> reply,
                    Exchange& exchange) {
  check(context.model, call);
  // The reply starts before the engine's thread can reach it; a full queue takes it back.
  Reply& started = *reply;
  auto generation = std::make_shared<AnswerSet>(context, call, std::move(reply));
  std::vector<ServedRequest> requests;
  for (std::size_t i = 0; i < call.answers(); ++i) {
    ServedRequest request;
    request.generation.prompt = call.prompts[i / static_cast<std::size_t>(call.answers_per_prompt)];
    request.generation.max_tokens = call.max_tokens;
    request.generation.sampling = call.sampling;
    if (call.sampling.seed) request.generation.sampling.seed = *call.sampling.seed + i;
    if (!call.ignore_stop_tokens) request.generation.stop_tokens = context.stop_tokens;
    request.generation.mask = context.mask;
    request.top_logprobs = call.top_logprobs;
    if (call.make_rule) request.rule = call.make_rule();
    request.listener = std::make_shared<AnswerListener>(generation, i);
    requests.push_back(std::move(request));
  }
  const std::vector<Ticket> tickets = context.queue.submit(std::move(requests), [&](const std::vector<Ticket>& taken) {
    generation->set_tickets(taken);
    started.start();
  });
  if (tickets.empty() && context.queue.stopping()) throw ApiError(503, "the server is stopping");
  if (tickets.empty()) throw ApiError(429, "too many requests are waiting; come again later", "", "queue_full");
  exchange.on_abort([&queue = context.queue, tickets] {
    for (const Ticket ticket : tickets) queue.cancel(ticket);
  });
}

}  // namespace pergola
