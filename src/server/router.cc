#include "server/router.h"

#include <new>

#include "base/error.h"
#include "format/json.h"
#include "server/api_error.h"
#include "server/handlers.h"
#include "server/page.h"

namespace pergola {
namespace {

void require_method(const HttpRequest& request, std::string_view method) {
  if (request.method == method) return;
  throw ApiError(405,
                 fmt::format("{} takes {}, not {}", request.path.substr(0, 128), method, request.method.substr(0, 16)));
}

ErrorStyle style_of(const HttpRequest& request) {
  return request.path.starts_with("/v1/messages") ? ErrorStyle::anthropic : ErrorStyle::openai;
}

}  // namespace

nlohmann::ordered_json read_body(const HttpRequest& request) {
  // A web page may send other types to any server without asking; JSON it may not.
  if (!request.header("content-type").starts_with("application/json")) {
    throw ApiError(415, "the body must be sent as application/json");
  }
  try {
    return parse_ordered_json(request.body, "the body");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

void Router::handle_health(const std::shared_ptr<Exchange>& to) const {
  const ModelService* service = service_.load();
  if (service == nullptr) throw ApiError(503, "the model is being loaded");
  const double stalled = service->queue().stalled_seconds();
  if (stalled > stall_seconds_) {
    throw ApiError(503, fmt::format("work waits, but no step was finished for {:.0f} seconds", stalled));
  }
  to->respond({.body = R"({"status":"ok"})"});
}

void Router::dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& to) const {
  const std::string& path = request.path;
  access_.check(request, path == "/health" || path == "/");
  if (path == "/health") {
    require_method(request, "GET");
    return handle_health(to);
  }
  if (path == "/") {  // nothing but a form: its calls bring the key
    require_method(request, "GET");
    return to->respond(chat_page());
  }
  const ModelService* service = service_.load();
  if (service == nullptr) throw ApiError(503, "the model is being loaded");

  using PostHandler = void (*)(const ModelService&, const HttpRequest&, const std::shared_ptr<Exchange>&);
  static const std::map<std::string, PostHandler, std::less<>> kPosts{
      {"/v1/completions", handle_completions},
      {"/v1/chat/completions", handle_chat_completions},
      {"/v1/responses", handle_responses},
      {"/v1/messages", handle_messages},
      {"/v1/messages/count_tokens", handle_count_tokens},
      {"/tokenize", handle_tokenize},
      {"/detokenize", handle_detokenize},
  };
  if (const auto found = kPosts.find(path); found != kPosts.end()) {
    require_method(request, "POST");
    return found->second(*service, request, to);
  }
  if (path == "/metrics") {
    require_method(request, "GET");
    return to->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_text(service->queue().stats(), counter_.counts())});
  }
  constexpr std::string_view kModel = "/v1/models/";
  if (path == "/v1/models" || path.starts_with(kModel)) {
    require_method(request, "GET");
    if (path == "/v1/models") return handle_models(*service, to);
    return handle_model(*service, path.substr(kModel.size()), to);
  }
  throw ApiError(404, fmt::format("there is nothing at {}", path.substr(0, 128)));
}

void Router::refuse_with(const ApiError& error, const HttpRequest& request, const std::shared_ptr<Exchange>& to) const {
  counter_.count(error.status());
  to->respond(error_response(error, style_of(request)));
}

void Router::handle(const HttpRequest& request, const std::shared_ptr<Exchange>& to) const {
  try {
    dispatch(request, to);
    counter_.count(200);
  } catch (const ApiError& error) {
    refuse_with(error, request, to);
  } catch (const Error& error) {
    refuse_with(ApiError(400, error.what()), request, to);
  } catch (const std::bad_alloc&) {
    refuse_with(ApiError(503, "out of memory"), request, to);
  } catch (const std::exception& error) {
    refuse_with(ApiError(500, error.what()), request, to);
  }
}

}  // namespace pergola
