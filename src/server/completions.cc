#include "base/error.h"
#include "format/json.h"
#include "server/handlers.h"
#include "server/openai_format.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

Json logprobs_of(const std::vector<TokenText>& tokens, std::size_t offset) {
  Json texts = Json::array();
  Json values = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenText& token : tokens) {
    texts.push_back(token.text);
    values.push_back(token.logprob);
    Json top = Json::object();
    for (const auto& [text, logprob] : token.top) top[text] = logprob;
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += token.text.size();
  }
  return {{"tokens", texts}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

Json choice_of(std::size_t index, const std::string& text, const std::vector<TokenText>& tokens, std::size_t offset,
               const AnswerEnding* ending) {
  return {{"index", index},
          {"text", text},
          {"logprobs", tokens.empty() ? Json(nullptr) : logprobs_of(tokens, offset)},
          {"finish_reason", ending != nullptr ? Json(finish_reason(*ending)) : Json(nullptr)}};
}

constexpr const char* kKind = "text_completion";  // of a chunk as well

class WholeCompletion final : public WholeOpenAiReply {
 public:
  /// `echo`: a text that comes before each answer.
  WholeCompletion(std::shared_ptr<Exchange> exchange, ReplyHead head, std::vector<std::string> echo)
      : WholeOpenAiReply(std::move(exchange), echo.size(), std::move(head), kKind), echo_(std::move(echo)) {}

 protected:
  Json choice(std::size_t index, const Answer& answer) const override {
    const std::string& echo = echo_[index];
    return choice_of(index, echo + answer.all.text, answer.all.tokens, echo.size(), &answer.ending);
  }

 private:
  std::vector<std::string> echo_;
};

class StreamedCompletion final : public StreamedOpenAiReply {
 public:
  StreamedCompletion(std::shared_ptr<Exchange> exchange, ReplyHead head, std::vector<std::string> echo,
                     bool include_usage)
      : StreamedOpenAiReply(std::move(exchange), std::move(head), kKind, include_usage),
        echo_(std::move(echo)),
        written_(echo_.size(), 0) {}

  void start() override {
    StreamedOpenAiReply::start();
    for (std::size_t i = 0; i < echo_.size(); ++i) {
      if (!echo_[i].empty()) send(i, echo_[i], {}, nullptr);
    }
  }
  void piece(std::size_t answer, const AnswerPiece& piece) override { send(answer, piece.text, piece.tokens, nullptr); }
  void end_answer(std::size_t answer, const AnswerEnding& ending) override { send(answer, "", {}, &ending); }

 private:
  void send(std::size_t answer, const std::string& text, const std::vector<TokenText>& tokens,
            const AnswerEnding* ending) {
    send_choice(choice_of(answer, text, tokens, written_[answer], ending));
    written_[answer] += text.size();
  }

  std::vector<std::string> echo_;
  std::vector<std::size_t> written_;  // bytes of each answer
};

std::vector<std::int32_t> token_list(const Json& list) {
  std::vector<std::int32_t> tokens;
  for (const Json& element : list) {
    const bool is_id = element.is_number_integer() && element.get<double>() >= 0 && element.get<double>() <= INT32_MAX;
    if (!is_id) refuse("prompt", "has {} where token ids are expected", to_text(element).substr(0, 64));
    tokens.push_back(element.get<std::int32_t>());
  }
  return tokens;
}

/// "prompt": a text, tokens, or an array of either.
std::vector<std::vector<std::int32_t>> read_prompts(const ModelService& service, JsonFields& fields) {
  const Json& prompt = fields.require("prompt");
  const auto encode = [&](const Json& text) { return service.tokenizer().encode(text.get<std::string>(), true); };
  if (prompt.is_string()) return {encode(prompt)};
  if (!prompt.is_array()) refuse("prompt", "must be a string, an array of strings or tokens, is {}", kind_of(prompt));
  if (!prompt.empty() && prompt[0].is_number()) return {token_list(prompt)};
  const auto most = static_cast<std::size_t>(service.limits().answers);
  if (prompt.empty() || prompt.size() > most) refuse("prompt", "must have 1 to {} texts, has {}", most, prompt.size());
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& one : prompt) {
    if (one.is_string()) {
      prompts.push_back(encode(one));
    } else if (one.is_array()) {
      prompts.push_back(token_list(one));
    } else {
      refuse("prompt", "has {} where a text or tokens are expected", kind_of(one));
    }
  }
  return prompts;
}

}  // namespace

void handle_completions(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  const Json body = read_body(request);
  JsonFields fields(body, "");
  service.check_model(fields);
  GenerationCall call;
  service.read_sampling(fields, call);
  call.stop = service.read_stop(fields, "stop");
  call.max_tokens = fields.integer("max_tokens", 1, INT32_MAX).value_or(16);
  call.top_logprobs = fields.integer("logprobs", 0, service.limits().top_logprobs).value_or(-1);
  const StreamOptions options = read_stream_options(fields);
  const bool echo = fields.boolean("echo").value_or(false);
  if (const auto best_of = fields.integer("best_of", 1, service.limits().answers);
      best_of && *best_of != call.answers_per_prompt) {
    refuse("best_of", "must be n or left out");
  }
  call.prompts = read_prompts(service, fields);
  fields.ignore({"user", "suffix"});
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty()) refuse("suffix", "is not supported");
  fields.refuse_others();
  if (static_cast<std::int64_t>(call.answers()) > service.limits().answers) {
    refuse("n", "times the number of prompts must be at most {}, is {}", service.limits().answers, call.answers());
  }

  service.check_size(call, options.stream);
  ReplyHead head{.id = random_id("cmpl-"), .model = service.name()};
  std::vector<std::string> echoes;
  for (const auto& prompt : call.prompts) {
    const std::string text = echo ? service.tokenizer().decode(prompt, true) : "";
    echoes.insert(echoes.end(), static_cast<std::size_t>(call.answers_per_prompt), text);
  }
  std::unique_ptr<Reply> reply;
  if (options.stream) {
    reply = std::make_unique<StreamedCompletion>(to, std::move(head), std::move(echoes), options.include_usage);
  } else {
    reply = std::make_unique<WholeCompletion>(to, std::move(head), std::move(echoes));
  }
  service.run(std::move(call), std::move(reply), *to);
}

}  // namespace pergola
