// Hostile bytes on a connection, in two pieces (the first byte says where they are cut): the server answers in HTTP or
// closes, always.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace {

using namespace pergola;

void answer(const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
  if (request.path != "/stream") {
    return to->respond({.status = request.body.empty() ? 404 : 200, .body = request.path + request.body});
  }
  to->start_stream({.content_type = "text/event-stream"});
  to->write(request.body);
  to->write("data: piece\n\n");
  to->finish();
}

std::uint16_t port() {
  static HttpServer server({.port = 0, .max_header_bytes = 1024, .max_body_bytes = 2048}, answer);
  return server.port();
}

int connect_to(std::uint16_t number) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(number);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  return socket;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the server has had enough
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string read_to_end(int socket) {
  std::string text;
  char block[4096];
  for (;;) {
    pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, 20'000) <= 0) std::abort();  // it hangs
    const ssize_t count = ::recv(socket, block, sizeof block, 0);
    if (count <= 0) return text;
    text.append(block, static_cast<std::size_t>(count));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int socket = connect_to(port());
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // thousands of connections a second must leave nothing behind
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const std::size_t cut = data[0] % bytes.size();
  send_all(socket, bytes.substr(0, cut));
  send_all(socket, bytes.substr(cut));
  ::shutdown(socket, SHUT_WR);
  const std::string text = read_to_end(socket);
  ::close(socket);
  if (!text.empty() && !text.starts_with("HTTP/1.")) std::abort();
  return 0;
}
