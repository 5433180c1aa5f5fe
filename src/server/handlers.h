#pragma once

#include <memory>

#include "server/exchange.h"
#include "server/http.h"
#include "server/model_service.h"

namespace pergola {

// One route each. They read the body, start the work and return; the exchange gets the reply, now or later. Throw
// ApiError for a request that is refused.
void handle_completions(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_chat_completions(const ModelService& service, const HttpRequest& request,
                             const std::shared_ptr<Exchange>& to);
void handle_responses(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_messages(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_count_tokens(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_tokenize(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_detokenize(const ModelService& service, const HttpRequest& request, const std::shared_ptr<Exchange>& to);
void handle_models(const ModelService& service, const std::shared_ptr<Exchange>& to);
void handle_model(const ModelService& service, const std::string& name, const std::shared_ptr<Exchange>& to);

/// The body as JSON. Throws ApiError unless it is a JSON object, sent as such.
nlohmann::ordered_json read_body(const HttpRequest& request);

}  // namespace pergola
