#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/exchange.h"
#include "server/http.h"

namespace pergola {

/// How connections are treated.
struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  ///< 0: one that is free
  int threads = 1;
  std::size_t max_connections = 1024;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_body_bytes = std::size_t{8} << 20;
  std::size_t max_all_bodies_bytes = std::size_t{256} << 20;  ///< of all requests that are being read
  std::chrono::milliseconds idle_timeout{60'000};             ///< between requests of a connection
  std::chrono::milliseconds read_timeout{30'000};             ///< for the whole of a request
  std::chrono::milliseconds write_timeout{30'000};            ///< for a piece of a reply to be taken
  std::string certificate;                                    ///< PEM files; both empty: no TLS
  std::string private_key;
};

/// Called by a thread of the server for every request; must not throw.
using HttpHandler = std::function<void(const HttpRequest& request, const std::shared_ptr<Exchange>& to)>;

/// HTTP/1.1 over TCP, with TLS where certificates are given.
class HttpServer {
 public:
  /// Listens from now on. Throws Error naming what is wrong with address or certificate.
  HttpServer(const HttpOptions& options, HttpHandler handler);
  /// Closes every connection.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  /// Takes no new connections, and ends those that have no request under way.
  void stop_accepting();
  /// Connections that are open.
  std::size_t connections() const;
  /// Requests whose replies are not sent yet.
  std::size_t answering() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pergola
