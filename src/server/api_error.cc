#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

std::string openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string error_event(const ApiError& error, ErrorStyle style) {
  Json body;
  if (style == ErrorStyle::anthropic) {
    body = {{"type", "error"}, {"error", {{"type", anthropic_type(error.status())}, {"message", error.what()}}}};
  } else {
    body = {{"error",
             {{"message", error.what()},
              {"type", openai_type(error.status())},
              {"param", text_or_null(error.field())},
              {"code", text_or_null(error.code())}}}};
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error, ErrorStyle style) {
  HttpResponse response{.status = error.status(), .body = error_event(error, style)};
  if (error.status() == 429) response.headers.emplace_back("Retry-After", "1");
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace pergola
