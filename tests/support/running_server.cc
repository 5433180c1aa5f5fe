#include "support/running_server.h"

#include <stdexcept>

#include "format/generation_config.h"

namespace pergola::testing {
namespace {

std::unique_ptr<Engine> story_engine(const RunningServer::Options& settings) {
  EngineOptions options{.backend = "cpu"};
  options.device.max_rows = 256;
  options.memory = {.context = settings.context,
                    .max_sequences = settings.max_sequences,
                    .logit_rows = settings.max_sequences,
                    .checkpoints = 16};
  return std::make_unique<Engine>(open_model(Checkpoint(PERGOLA_SOURCE_DIR "/models/story"), options), Progress{});
}

using Json = nlohmann::ordered_json;

const Json kQuestion = Json::array({{{"role", "user"}, {"content", "Tell me about the sea."}}});

Json body_of(const char* what, const Json& value, const char* most, const Json& more) {
  Json body{{"model", "story"}, {what, value}, {most, 12}, {"temperature", 0}};
  body.update(more);
  return body;
}

}  // namespace

std::vector<nlohmann::ordered_json> HandlerReply::events() const {
  std::vector<nlohmann::ordered_json> list;
  constexpr std::string_view kData = "data: ";
  for (std::size_t at = body.find(kData); at != std::string::npos; at = body.find(kData, at)) {
    at += kData.size();
    const std::string data = body.substr(at, body.find('\n', at) - at);
    if (data != "[DONE]") list.push_back(nlohmann::ordered_json::parse(data));
  }
  return list;
}

RunningServer::RunningServer(const Options& options)
    : router_(AccessRules(options.keys, true), options.stall_seconds), engine_(story_engine(options)) {
  const std::string folder = PERGOLA_SOURCE_DIR "/models/story";
  loop_ = std::make_unique<EngineLoop>(*engine_, SchedulerOptions{}, options.queue);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const ModelFacts facts{engine_->info().vocab_size, engine_->memory().context, engine_->info().max_positions};
  service_ = std::make_unique<ModelService>(facts, *loop_, tokenizer, ChatTemplate::load(folder, tokenizer),
                                            load_generation_config(folder, engine_->checkpoint().config()), "story",
                                            RequestLimits{});
  router_.set_ready(*service_);
}

HandlerReply RunningServer::send(const HttpRequest& request) {
  ReplyWaiter waiter;
  router_.handle(request, waiter.exchange());
  return waiter.wait();
}

HandlerReply RunningServer::post_text(const std::string& path, const std::string& body) {
  return send({.method = "POST", .path = path, .headers = {{"content-type", "application/json"}}, .body = body});
}

HandlerReply RunningServer::get(const std::string& path) {
  return send({.method = "GET", .path = path});
}

RunningServer& shared_server() {
  static RunningServer running;
  return running;
}

Json completion_body(const Json& more) {
  return body_of("prompt", "Once upon a time", "max_tokens", more);
}

Json chat_body(const Json& more) {
  return body_of("messages", kQuestion, "max_tokens", more);
}

Json message_body(const Json& more) {
  return body_of("messages", kQuestion, "max_tokens", more);
}

Json response_body(const Json& more) {
  return body_of("input", "Tell me about the sea.", "max_output_tokens", more);
}

ReplyWaiter::ReplyWaiter() {
  exchange_->on_news([weak = std::weak_ptr(state_), exchange = exchange_.get()] {
    const auto state = weak.lock();
    if (state == nullptr) return;
    const std::lock_guard lock(state->mutex);
    Exchange::News news = exchange->take();
    HandlerReply& reply = state->reply;
    if (news.head) {
      reply.head = std::move(*news.head);
      reply.body = std::move(reply.head.body);
      reply.streamed = news.streaming;
    }
    reply.body += news.body;
    state->finished = state->finished || news.finished || news.aborted;
    state->changed.notify_all();
  });
}

void ReplyWaiter::wait_for_bytes(std::size_t count) {
  std::unique_lock lock(state_->mutex);
  const bool came = state_->changed.wait_for(lock, std::chrono::minutes(1),
                                             [&] { return state_->finished || state_->reply.body.size() >= count; });
  if (!came) throw std::runtime_error("no reply within a minute");
}

HandlerReply ReplyWaiter::wait() {
  wait_for_bytes(SIZE_MAX);
  const std::lock_guard lock(state_->mutex);
  return state_->reply;
}

}  // namespace pergola::testing
