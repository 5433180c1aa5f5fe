#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine_loop.h"
#include "server/exchange.h"
#include "server/model_service.h"
#include "server/router.h"

namespace pergola::testing {

/// What came back from a handler.
struct HandlerReply {
  HttpResponse head;
  bool streamed = false;
  std::string body;  ///< all of it, streamed or not

  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(body); }
  /// The data of the events of a stream, without "[DONE]".
  std::vector<nlohmann::ordered_json> events() const;
};

/// The bundled model behind a router, without sockets.
class RunningServer {
 public:
  struct Options {
    std::int64_t max_sequences = 4;
    std::int64_t context = 2048;
    std::int64_t queue = 64;
    std::vector<std::string> keys;
    double stall_seconds = 10;
  };
  RunningServer() : RunningServer(Options{}) {}
  explicit RunningServer(const Options& options);

  Router& router() { return router_; }
  EngineLoop& loop() { return *loop_; }
  const Tokenizer& tokenizer() const { return service_->tokenizer(); }

  /// Calls the handler and waits for the whole reply.
  HandlerReply post(const std::string& path, const nlohmann::ordered_json& body) {
    return post_text(path, body.dump());
  }
  HandlerReply post_text(const std::string& path, const std::string& body);
  HandlerReply get(const std::string& path);
  HandlerReply send(const HttpRequest& request);

 private:
  Router router_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ModelService> service_;
};

/// One server for all tests of a program: loading a model for each would take most of the time.
RunningServer& shared_server();

// Bodies of short greedy requests, by route. `more` replaces and adds members.
nlohmann::ordered_json completion_body(const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
nlohmann::ordered_json chat_body(const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
nlohmann::ordered_json message_body(const nlohmann::ordered_json& more = nlohmann::ordered_json::object());
nlohmann::ordered_json response_body(const nlohmann::ordered_json& more = nlohmann::ordered_json::object());

/// Waits until the reply is complete; throws std::runtime_error after a minute.
class ReplyWaiter {
 public:
  ReplyWaiter();
  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
  /// Waits until `count` bytes of body came or the reply ended.
  void wait_for_bytes(std::size_t count);
  HandlerReply wait();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    HandlerReply reply;
    bool finished = false;
  };

  std::shared_ptr<Exchange> exchange_ = std::make_shared<Exchange>();
  std::shared_ptr<State> state_ = std::make_shared<State>();  // late news may outlive the waiter
};

}  // namespace pergola::testing
