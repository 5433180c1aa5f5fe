#include "server/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace pergola {
namespace {

class Socket {
 public:
  Socket(const std::string& host, const std::string& port, const std::string& url) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
      fail({.file = url}, "cannot find the host: {}", ::gai_strerror(code));
    }
    for (const addrinfo* address = found; address != nullptr && descriptor_ < 0; address = address->ai_next) {
      descriptor_ = ::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol);
      if (descriptor_ >= 0 && ::connect(descriptor_, address->ai_addr, address->ai_addrlen) != 0) {
        ::close(descriptor_);
        descriptor_ = -1;
      }
    }
    const int error = errno;
    ::freeaddrinfo(found);
    if (descriptor_ < 0) fail({.file = url}, "cannot connect: {}", std::strerror(error));
    const int yes = 1;
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  ~Socket() { ::close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) fail({}, "the connection broke while sending: {}", std::strerror(errno));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  /// Appends what came; false at the end.
  bool receive(std::string& to) const {
    char block[16384];
    const ssize_t count = ::recv(descriptor_, block, sizeof block, 0);
    if (count < 0) fail({}, "the connection broke while receiving: {}", std::strerror(errno));
    to.append(block, static_cast<std::size_t>(count));
    return count > 0;
  }

 private:
  int descriptor_ = -1;
};

/// Takes whole chunks out of `raw`; false once the last one came.
bool take_chunks(std::string& raw, const std::function<void(std::string_view)>& take) {
  for (;;) {
    const std::size_t line = raw.find("\r\n");
    if (line == std::string::npos) return true;
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(raw.data(), raw.data() + line, size, 16);
    if (error != std::errc() || end == raw.data()) fail({}, "the server sent a bad chunk");
    if (size == 0) return false;
    if (raw.size() < line + 2 + size + 2) return true;
    take(std::string_view(raw).substr(line + 2, size));
    raw.erase(0, line + 2 + size + 2);
  }
}

}  // namespace

HttpClient::HttpClient(const std::string& url) : url_(url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) fail({.field = "URL"}, "must start with http://, is '{}'", url);
  const std::string rest = url.substr(kScheme.size(), url.find('/', kScheme.size()) - kScheme.size());
  const std::size_t colon = rest.rfind(':');
  host_ = rest.substr(0, colon);
  port_ = colon == std::string::npos ? "80" : rest.substr(colon + 1);
  if (host_.empty()) fail({.field = "URL"}, "has no host: '{}'", url);
}

ClientReply HttpClient::get(const std::string& path, const std::string& api_key) const {
  std::string request = fmt::format("GET {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n", path, host_, port_);
  if (!api_key.empty()) request += fmt::format("Authorization: Bearer {}\r\n", api_key);
  return exchange(request + "\r\n", {});
}

ClientReply HttpClient::post(const std::string& path, const std::string& json, const std::string& api_key,
                             const std::function<void(std::string_view)>& on_data) const {
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n",
      path, host_, port_, json.size());
  if (!api_key.empty()) request += fmt::format("Authorization: Bearer {}\r\n", api_key);
  return exchange(request + "\r\n" + json, on_data);
}

ClientReply HttpClient::exchange(const std::string& request,
                                 const std::function<void(std::string_view)>& on_data) const {
  const Socket socket(host_, port_, url_);
  socket.send(request);
  std::string raw;
  std::size_t head = std::string::npos;
  while ((head = raw.find("\r\n\r\n")) == std::string::npos) {
    if (!socket.receive(raw)) fail({.file = url_}, "closed the connection without an answer");
  }
  ClientReply reply;
  if (raw.size() < 12 || !raw.starts_with("HTTP/1.") ||
      std::from_chars(raw.data() + 9, raw.data() + 12, reply.status).ec != std::errc()) {
    fail({.file = url_}, "does not answer in HTTP");
  }
  const bool chunked = raw.substr(0, head).find("chunked") != std::string::npos;
  raw.erase(0, head + 4);
  const auto take = [&](std::string_view piece) {
    reply.body += piece;
    if (on_data) on_data(piece);
  };
  bool more = true;
  do {
    if (chunked) {
      if (!take_chunks(raw, take)) return reply;
    } else {
      take(raw);
      raw.clear();
    }
    more = socket.receive(raw);
  } while (more);
  if (chunked) fail({.file = url_}, "ended its answer too early");
  return reply;
}

}  // namespace pergola
