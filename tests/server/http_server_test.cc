#include "server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "support/checkpoint_writer.h"
#include "support/process.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A client that sends bytes as they are and waits for bytes.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int descriptor() const { return socket_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(const std::string& text) const {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (count <= 0) return;  // the server may have had enough
      at += static_cast<std::size_t>(count);
    }
  }
  /// Reads until `wanted` appears or the connection ends; gives up after 20 seconds.
  std::string read_until(const std::string& wanted) const {
    std::string text;
    while (text.find(wanted) == std::string::npos) {
      pollfd entry{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, 20'000) <= 0) return text + "[nothing more came]";
      char block[65536];
      const ssize_t count = ::recv(socket_, block, sizeof block, 0);
      if (count <= 0) return text + "[closed]";
      text.append(block, static_cast<std::size_t>(count));
    }
    return text;
  }
  std::string read_all() const { return read_until("\x01never"); }

 private:
  int socket_;
};

/// Answers with what was asked; /stream sends pieces until the client leaves; /count says how many bytes came.
class TestServer {
 public:
  explicit TestServer(HttpOptions options = {}) : server_(with_any_port(std::move(options)), handler()) {}
  ~TestServer() {
    stop_ = true;
    if (streamer_.joinable()) streamer_.join();
  }

  std::uint16_t port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  bool left() const { return left_; }

 private:
  static HttpOptions with_any_port(HttpOptions options) {
    options.port = 0;
    return options;
  }

  HttpHandler handler() {
    return [this](const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
      if (request.path == "/stream") return start_streaming(to);
      if (request.path == "/three") {
        to->start_stream({.content_type = "text/event-stream"});
        for (const char* piece : {"one ", "two ", "three"}) to->write(piece);
        return to->finish();
      }
      if (request.path == "/count") return to->respond({.body = std::to_string(request.body.size())});
      to->respond({.body = request.method + " " + request.path + " " + request.body});
    };
  }

  void start_streaming(const std::shared_ptr<Exchange>& to) {
    to->on_abort([this] { left_ = true; });
    to->start_stream({.content_type = "text/event-stream"});
    streamer_ = std::thread([this, to] {
      for (int i = 0; i < 2000 && !left_ && !stop_; ++i) {
        to->write("data: piece\n\n");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      to->finish();
    });
  }

  std::atomic<bool> left_{false};
  std::atomic<bool> stop_{false};
  std::thread streamer_;
  HttpServer server_;
};

const std::string kGet = "GET /hello?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(HttpServer, AnswersOneAfterAnotherOnAConnection) {
  TestServer server;
  const Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(kGet);
    EXPECT_THAT(client.read_until("GET /hello "), AllOf(StartsWith("HTTP/1.1 200 OK"), HasSubstr("Content-Length")));
  }
  client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
  EXPECT_THAT(client.read_all(), AllOf(HasSubstr("POST /a body"), HasSubstr("[closed]")));
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  const Client client(server.port());
  client.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string all = client.read_all();
  EXPECT_LT(all.find("GET /1"), all.find("GET /2"));
  EXPECT_LT(all.find("GET /2"), all.find("GET /3"));
  EXPECT_NE(all.find("GET /3"), std::string::npos) << all;
}

TEST(HttpServer, BodiesInChunksAreTaken) {
  TestServer server;
  const Client client(server.port());
  client.send("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(client.read_until("abcde"), HasSubstr("POST /a abcde"));
}

TEST(HttpServer, AsksForTheBodyWhenTheClientWaits) {
  TestServer server;
  const Client client(server.port());
  client.send("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  client.send("ok");
  EXPECT_THAT(client.read_until("POST /a ok"), HasSubstr("200 OK"));
}

TEST(HttpServer, StreamsInChunksAndPlainlyForOldClients) {
  TestServer server;
  const Client client(server.port());
  client.send("GET /three HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  client.send(kGet);  // the connection goes on
  client.read_until("GET /hello");
  const Client old(server.port());
  old.send("GET /three HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.read_all(), HasSubstr("\r\n\r\none two three[closed]"));
}

TEST(HttpServer, SeesWhenAClientLeaves) {
  TestServer server;
  Client client(server.port());
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  client.read_until("piece");
  EXPECT_FALSE(server.left());
  client.close();
  for (int i = 0; i < 200 && !server.left(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(server.left());
}

TEST(HttpServer, SeesItBehindBytesThatNobodyReads) {
  TestServer server;
  Client client(server.port());
  client.send("GET /stream HTTP/1.1\r\n\r\nGET /pipelined");
  client.read_until("piece");
  ::shutdown(client.descriptor(), SHUT_WR);
  for (int i = 0; i < 200 && !server.left(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(server.left());
}

TEST(HttpServer, ClientThatDoesNotReadIsLetGo) {
  TestServer server({.write_timeout = std::chrono::milliseconds(300)});
  // A reply of 64 MiB does not fit the buffers between the two.
  HttpServer big({.port = 0, .write_timeout = std::chrono::milliseconds(300)},
                 [](const HttpRequest&, const std::shared_ptr<Exchange>& to) {
                   to->respond({.body = std::string(std::size_t{64} << 20, 'x')});
                 });
  const Client client(big.port());
  client.send(kGet);
  for (int i = 0; i < 300 && big.connections() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(big.connections(), 0u);
}

TEST(HttpServer, RefusesWhatIsTooLarge) {
  TestServer server({.max_header_bytes = 4096, .max_body_bytes = 1000});
  const Client body(server.port());
  body.send("POST /a HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
  EXPECT_THAT(body.read_all(), AllOf(StartsWith("HTTP/1.1 413"), HasSubstr("more than 1000 bytes")));
  const Client chunks(server.port());
  chunks.send("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunks.send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_THAT(chunks.read_all(), StartsWith("HTTP/1.1 413"));
  const Client headers(server.port());
  headers.send("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x') + "\r\n\r\n");
  EXPECT_THAT(headers.read_all(), StartsWith("HTTP/1.1 431"));
  const Client fits(server.port());
  fits.send("POST /count HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_THAT(fits.read_until("\r\n\r\n1000"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, RefusesWhatIsNotHttp) {
  TestServer server;
  for (const char* text : {"hello\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02", "GET / HTTP/9.9\r\n\r\n",
                           "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    const Client client(server.port());
    client.send(text);
    ::shutdown(client.descriptor(), SHUT_WR);
    EXPECT_THAT(client.read_all(), HasSubstr("[closed]")) << text;
  }
  const Client client(server.port());
  client.send(kGet);
  EXPECT_THAT(client.read_until("GET /hello"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, BodiesThatAreReadAreBoundedTogether) {
  TestServer server({.max_body_bytes = 100'000, .max_all_bodies_bytes = 150'000});
  const std::string chunk = "15f90\r\n" + std::string(90'000, 'x') + "\r\n";
  const std::string start = "POST /count HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  {
    const Client first(server.port());
    first.send(start + chunk);
    const Client second(server.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the first is read
    second.send(start + chunk);
    EXPECT_THAT(second.read_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("too many large requests")));
    first.send("0\r\n\r\n");
    EXPECT_THAT(first.read_until("90000"), StartsWith("HTTP/1.1 200"));
  }
  const Client third(server.port());  // what was counted is given back
  third.send(start + chunk + "0\r\n\r\n");
  EXPECT_THAT(third.read_until("90000"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  TestServer server;
  const Client client(server.port());
  client.send("HEAD /hello HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), AllOf(HasSubstr("200 OK"), HasSubstr("Content-Length: 11")));
  client.send("HEAD /three HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), AllOf(HasSubstr("200 OK"), Not(HasSubstr("one"))));
  client.send(kGet);
  EXPECT_THAT(client.read_until("GET /hello"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, EscapesInPathsAreUnderstood) {
  TestServer server;
  const Client client(server.port());
  client.send("GET /a%20b%2Fc%zz%4 HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_until("GET /"), HasSubstr("200 OK"));
  client.send("GET /a%20b%2Fc%zz%4 HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read_all(), HasSubstr("/a b/c%zz%4 "));
}

TEST(HttpServer, StoppingEndsIdleConnectionsAndLetsRepliesEnd) {
  TestServer server;
  const Client idle(server.port());
  idle.send(kGet);
  idle.read_until("GET /hello");
  const Client silent(server.port());
  const Client busy(server.port());
  busy.send("GET /stream HTTP/1.1\r\n\r\n");
  busy.read_until("piece");
  EXPECT_EQ(server.server().answering(), 1u);
  server.server().stop_accepting();
  EXPECT_THAT(idle.read_all(), HasSubstr("[closed]"));
  EXPECT_THAT(silent.read_all(), "[closed]");
  EXPECT_THAT(busy.read_until("piece"), Not(HasSubstr("[closed]")));
  EXPECT_FALSE(server.left());
}

TEST(HttpServer, SlowReaderOfAStreamIsLetGoAndItsWriterHears) {
  std::atomic<bool> left{false};
  std::atomic<std::size_t> written{0};
  std::thread writer;
  HttpServer server({.port = 0, .write_timeout = std::chrono::seconds(20)},
                    [&](const HttpRequest&, const std::shared_ptr<Exchange>& to) {
                      to->on_abort([&] { left = true; });
                      to->start_stream({});
                      writer = std::thread([&, to] {
                        const std::string piece(65536, 'x');
                        for (; !left && written < (std::size_t{1} << 30); written += piece.size()) to->write(piece);
                      });
                    });
  const Client client(server.port());
  client.send(kGet);
  for (int i = 0; i < 500 && !left; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(left);
  writer.join();
  EXPECT_LT(written, std::size_t{64} << 20) << "what nobody reads must not pile up";
}

TEST(HttpServer, ContradictingLengthsAreRefused) {
  TestServer server;
  for (const char* headers :
       {"Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 99999999999999999999", "Transfer-Encoding: gzip, identity, x"}) {
    const Client client(server.port());
    client.send(std::string("POST /a HTTP/1.1\r\n") + headers +
                "\r\n\r\n5\r\nabcde\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n");
    ::shutdown(client.descriptor(), SHUT_WR);
    EXPECT_THAT(client.read_all(), Not(HasSubstr("smuggled"))) << headers;
  }
}

TEST(HttpServer, SilentTlsHandshakeMeetsADeadline) {
  const testing::TempFolder folder;
  const testing::Outcome made =
      testing::run_process({"/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                            folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost"});
  if (made.code != 0) GTEST_SKIP() << "no openssl program to make a certificate with: " << made.err;
  TestServer server({.read_timeout = std::chrono::milliseconds(300),
                     .certificate = folder / "cert.pem",
                     .private_key = folder / "key.pem"});
  const Client silent(server.port());
  EXPECT_THAT(silent.read_all(), HasSubstr("[closed]"));
  const Client plain(server.port());
  plain.send(kGet);
  EXPECT_THAT(plain.read_all(), Not(HasSubstr("200 OK")));
}

TEST(HttpServer, SlowClientsMeetADeadline) {
  TestServer server({.idle_timeout = std::chrono::milliseconds(300), .read_timeout = std::chrono::milliseconds(300)});
  const Client silent(server.port());
  EXPECT_THAT(silent.read_all(), "[closed]");
  const Client slow(server.port());
  slow.send("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n");
  for (int i = 0; i < 8; ++i) {
    slow.send("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  EXPECT_THAT(slow.read_all(), HasSubstr("[closed]"));
}

TEST(HttpServer, ConnectionsAreBounded) {
  TestServer server({.max_connections = 2});
  const Client a(server.port());
  const Client b(server.port());
  a.send(kGet);
  a.read_until("GET /hello");
  b.send(kGet);
  b.read_until("GET /hello");
  const Client c(server.port());
  EXPECT_THAT(c.read_all(), "[closed]");
}

TEST(HttpServer, AddressInUseIsSaid) {
  TestServer server;
  try {
    HttpServer second({.port = server.port()}, [](const HttpRequest&, const std::shared_ptr<Exchange>&) {});
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot listen on 127.0.0.1"));
  }
}

TEST(HttpServer, SpeaksTls) {
  const testing::TempFolder folder;
  const std::string key = folder / "key.pem";
  const std::string certificate = folder / "cert.pem";
  const testing::Outcome made =
      testing::run_process({"/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
                            certificate, "-days", "2", "-subj", "/CN=localhost"});
  if (made.code != 0) GTEST_SKIP() << "no openssl program to make a certificate with: " << made.err;
  TestServer server({.certificate = certificate, .private_key = key});
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* tls = SSL_new(context);
  const Client client(server.port());
  SSL_set_fd(tls, client.descriptor());
  ASSERT_EQ(SSL_connect(tls), 1);
  ASSERT_GT(SSL_write(tls, kGet.data(), static_cast<int>(kGet.size())), 0);
  std::string text;
  char block[4096];
  while (text.find("GET /hello") == std::string::npos) {
    const int count = SSL_read(tls, block, sizeof block);
    ASSERT_GT(count, 0) << text;
    text.append(block, static_cast<std::size_t>(count));
  }
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK"));
  SSL_free(tls);
  SSL_CTX_free(context);

  try {
    HttpServer bad({.port = 0, .certificate = key, .private_key = key}, {});
    FAIL() << "a key is no certificate";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not a PEM certificate"));
  }
}

}  // namespace
}  // namespace pergola
