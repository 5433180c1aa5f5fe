// A hostile JSON body for every route that takes one (the first byte picks it), before a queue that takes nothing:
// everything that reads a request runs, nothing is computed. Answers are a status that clients can cause, and JSON.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "format/generation_config.h"
#include "server/router.h"

namespace {

using namespace pergola;

class FullQueue final : public RequestQueue {
 public:
  std::vector<Ticket> submit(std::vector<ServedRequest>,
                             const std::function<void(const std::vector<Ticket>&)>&) override {
    return {};
  }
  void cancel(Ticket) override { std::abort(); }  // nothing was taken
  bool stopping() const override { return false; }
  SchedulerStats stats() const override { return {}; }
  double stalled_seconds() const override { return 0; }
};

const Router& router() {
  static FullQueue queue;
  static const ModelService service = [] {
    const std::string folder = PERGOLA_SOURCE_DIR "/models/story";
    const Tokenizer tokenizer = Tokenizer::load(folder);
    return ModelService({4096, 2048, 8192}, queue, tokenizer, ChatTemplate::load(folder, tokenizer), GenerationConfig{},
                        "m", RequestLimits{});
  }();
  static Router made(AccessRules({}, true));
  made.set_ready(service);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  constexpr std::array kPaths = {"/v1/completions", "/v1/chat/completions",      "/v1/responses", "/v1/messages",
                                 "/tokenize",       "/v1/messages/count_tokens", "/detokenize"};
  const auto exchange = std::make_shared<Exchange>();
  router().handle({.method = "POST",
                   .path = kPaths[data[0] % kPaths.size()],
                   .headers = {{"content-type", "application/json"}},
                   .body = std::string(reinterpret_cast<const char*>(data) + 1, size - 1)},
                  exchange);
  const Exchange::News news = exchange->take();
  if (!news.head || !news.finished) std::abort();
  const int status = news.head->status;
  if (status != 200 && status != 400 && status != 404 && status != 429) std::abort();
  if (!nlohmann::json::accept(news.head->body)) std::abort();
  return 0;
}
