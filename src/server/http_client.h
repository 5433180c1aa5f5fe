#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pergola {

/// What a simple client got back.
struct ClientReply {
  int status = 0;
  std::string body;
};

/// One request over a connection of its own, for measuring servers: HTTP/1.1 without TLS, blocking. `on_data`, if
/// given, is told pieces of the body as they come. Throws Error when the server cannot be reached or does not answer in
/// HTTP.
class HttpClient {
 public:
  /// "http://host:port".
  explicit HttpClient(const std::string& url);

  ClientReply get(const std::string& path, const std::string& api_key) const;
  ClientReply post(const std::string& path, const std::string& json, const std::string& api_key,
                   const std::function<void(std::string_view)>& on_data = {}) const;

 private:
  ClientReply exchange(const std::string& request, const std::function<void(std::string_view)>& on_data) const;

  std::string url_;
  std::string host_;
  std::string port_;
};

}  // namespace pergola
