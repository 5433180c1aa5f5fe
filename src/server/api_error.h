#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "server/http.h"

namespace pergola {

/// A request that is refused. `what()` is one sentence for the client.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string field = {}, std::string code = {})
      : std::runtime_error(message), status_(status), field_(std::move(field)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& field() const { return field_; }  ///< which member of the body, empty if none
  const std::string& code() const { return code_; }    ///< OpenAI's "code", empty if none

 private:
  int status_;
  std::string field_;
  std::string code_;
};

/// Throws a 400 that names the field.
template <typename... Args>
[[noreturn]] void refuse(const std::string& field, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, field + " " + fmt::format(format, std::forward<Args>(args)...), field);
}

/// Whose words an error is put in.
enum class ErrorStyle : std::uint8_t { openai, anthropic };

/// The reply that says what is wrong. A 429 tells the client to come again in a second.
HttpResponse error_response(const ApiError& error, ErrorStyle style);

/// The same error as the JSON text of an event in a stream that was already started.
std::string error_event(const ApiError& error, ErrorStyle style);

}  // namespace pergola
