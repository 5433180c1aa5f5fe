// The only file that knows Boost.Beast: its templates take long to compile.
#include "server/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace pergola {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;
using ErrorCode = boost::system::error_code;

auto no_throw(ErrorCode& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// "%41" as "A"; what is no such escape stays as it is.
std::string without_escapes(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) i += 2;
    result += low >= 0 ? static_cast<char>(16 * high + low) : text[i];
  }
  return result;
}

HttpRequest to_request(http::request_parser<http::string_body>& parser) {
  auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  request.path = without_escapes(std::string_view(target).substr(0, target.find_first_of("?#")));
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    request.headers[std::move(name)] = std::string(field.value());
  }
  request.body = std::move(message.body());
  return request;
}

/// A reply that the connection itself makes.
HttpResponse plain_error(int status, const std::string& sentence) {
  return {.status = status,
          .body = "{\"error\":{\"message\":\"" + sentence + "\",\"type\":\"invalid_request_error\"}}"};
}

/// Lets the system find out that a silent client is gone for good: its machine lost power, its network ended.
void watch_for_dead_clients(Tcp::socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.native_handle(), level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/// Bytes of a request's body, counted against what all bodies together may take while they are read.
class BodyShare {
 public:
  BodyShare(std::atomic<std::size_t>& total, std::size_t most) : total_(total), most_(most) {}
  ~BodyShare() { total_ -= mine_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  /// The body has grown to `bytes`; false, and nothing is counted, when that is too much for all together.
  bool grow(std::size_t bytes) {
    if (bytes <= mine_) return true;
    const std::size_t more = bytes - mine_;
    if ((total_ += more) <= most_) {
      mine_ = bytes;
      return true;
    }
    total_ -= more;
    return false;
  }

 private:
  std::atomic<std::size_t>& total_;
  std::size_t most_;
  std::size_t mine_ = 0;
};

/// Counts up while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<std::size_t>& counter) : counter_(counter) { ++counter_; }
  ~Counted() { --counter_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::size_t>& counter_;
};

}  // namespace

struct HttpServer::State {
  State(const HttpOptions& settings, HttpHandler to_call)
      : options(settings),
        handler(std::move(to_call)),
        context(options.threads),
        acceptor_strand(asio::make_strand(context)),
        acceptor(acceptor_strand) {}

  void listen();
  void use_tls();
  asio::awaitable<void> accept();
  template <typename Stream>
  asio::awaitable<void> serve(std::shared_ptr<Stream> stream);
  asio::awaitable<void> serve_tls(std::shared_ptr<TlsStream> stream);
  template <typename Stream>
  asio::awaitable<bool> wait_for_request(const std::shared_ptr<Stream>& stream, beast::flat_buffer& buffer);
  template <typename Stream>
  asio::awaitable<ErrorCode> read_request(Stream& stream, beast::flat_buffer& buffer,
                                          http::request_parser<http::string_body>& parser, BodyShare& share);
  template <typename Stream>
  asio::awaitable<bool> answer(Stream& stream, HttpRequest request, unsigned version, bool keep_alive);
  template <typename Stream>
  asio::awaitable<bool> send(Stream& stream, const HttpResponse& response, unsigned version, bool keep_alive,
                             bool with_body);
  template <typename Stream>
  asio::awaitable<bool> send_head(Stream& stream, const HttpResponse& response, unsigned version, bool keep_alive);
  template <typename Stream>
  asio::awaitable<bool> send_piece(Stream& stream, std::string_view piece, unsigned version);
  template <typename Stream>
  asio::awaitable<bool> pass_on(Stream& stream, Exchange& exchange, asio::steady_timer& news_timer, unsigned version,
                                bool keep_alive, bool with_body);
  template <typename Stream>
  asio::awaitable<void> refuse(Stream& stream, ErrorCode error);
  template <typename Stream>
  void start(std::shared_ptr<Stream> stream);

  HttpOptions options;
  HttpHandler handler;
  asio::io_context context;
  std::optional<asio::ssl::context> tls;
  asio::strand<asio::io_context::executor_type> acceptor_strand;
  Tcp::acceptor acceptor;
  std::uint16_t port = 0;
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> answering{0};
  std::atomic<std::size_t> body_bytes{0};
  std::atomic<bool> stopping{false};
  std::mutex idle_mutex;
  std::map<const void*, std::function<void()>> idle;  // how to end connections that wait for a request
  std::vector<std::thread> threads;
};

void HttpServer::State::use_tls() {
  if (options.certificate.empty() && options.private_key.empty()) return;
  if (options.certificate.empty() || options.private_key.empty()) {
    fail({.field = "--tls-cert"}, "TLS needs both a certificate and its key (--tls-key)");
  }
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_sslv3);
  ErrorCode error;
  tls->use_certificate_chain_file(options.certificate, error);
  if (error) fail({.file = options.certificate}, "is not a PEM certificate: {}", error.message());
  tls->use_private_key_file(options.private_key, asio::ssl::context::pem, error);
  if (error) fail({.file = options.private_key}, "is not the PEM key of the certificate: {}", error.message());
}

void HttpServer::State::listen() {
  ErrorCode error;
  Tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, error);
  if (error || found.empty()) fail({.field = "--host"}, "'{}' is no address: {}", options.host, error.message());
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail({.field = "--port"}, "cannot listen on {}:{}: {}", options.host, options.port, error.message());
  port = acceptor.local_endpoint().port();
}

template <typename Stream>
asio::awaitable<bool> HttpServer::State::send(Stream& stream, const HttpResponse& response, unsigned version,
                                              bool keep_alive, bool with_body) {
  http::response<http::string_body> message(static_cast<http::status>(response.status), version);
  message.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive);
  message.body() = response.body;
  message.prepare_payload();
  http::response_serializer<http::string_body> serializer(message);
  ErrorCode error;
  beast::get_lowest_layer(stream).expires_after(options.write_timeout);
  if (with_body) {
    co_await http::async_write(stream, serializer, no_throw(error));
  } else {
    co_await http::async_write_header(stream, serializer, no_throw(error));
  }
  co_return !error;
}

template <typename Stream>
asio::awaitable<bool> HttpServer::State::send_head(Stream& stream, const HttpResponse& response, unsigned version,
                                                   bool keep_alive) {
  const bool chunked = version >= 11;
  http::response<http::empty_body> head(static_cast<http::status>(response.status), version);
  head.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) head.set(name, value);
  head.keep_alive(keep_alive);
  if (chunked) head.chunked(true);
  http::response_serializer<http::empty_body> serializer(head);
  ErrorCode error;
  beast::get_lowest_layer(stream).expires_after(options.write_timeout);
  co_await http::async_write_header(stream, serializer, no_throw(error));
  co_return !error;
}

/// A piece of a streamed body; an empty one ends it.
template <typename Stream>
asio::awaitable<bool> HttpServer::State::send_piece(Stream& stream, std::string_view piece, unsigned version) {
  ErrorCode error;
  beast::get_lowest_layer(stream).expires_after(options.write_timeout);
  if (version < 11) {
    if (!piece.empty()) co_await asio::async_write(stream, asio::buffer(piece.data(), piece.size()), no_throw(error));
  } else if (piece.empty()) {
    co_await asio::async_write(stream, http::make_chunk_last(), no_throw(error));
  } else {
    co_await asio::async_write(stream, http::make_chunk(asio::buffer(piece.data(), piece.size())), no_throw(error));
  }
  co_return !error;
}

/// Watches for the client's end of the connection while a reply is in the making. A client that sent its last byte is
/// gone; one that sends on (the next request) is looked at again a little later.
template <typename Stream>
class GoneWatch : public std::enable_shared_from_this<GoneWatch<Stream>> {
 public:
  GoneWatch(Stream& stream, std::shared_ptr<Exchange> exchange)
      : socket_(beast::get_lowest_layer(stream).socket()),
        timer_(stream.get_executor()),
        exchange_(std::move(exchange)) {}

  void start() {
    socket_.async_wait(Tcp::socket::wait_read, [self = this->shared_from_this()](ErrorCode error) {
      if (!self->ended_ && !error) self->look();
    });
  }

  /// To be called while the stream still lives.
  void end() {
    ended_ = true;
    timer_.cancel();
    ErrorCode ignored;
    socket_.cancel(ignored);
  }

 private:
  void look() {
    pollfd entry{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return exchange_->abort();
    timer_.expires_after(std::chrono::milliseconds(50));
    timer_.async_wait([self = this->shared_from_this()](ErrorCode error) {
      if (!self->ended_ && !error) self->look();
    });
  }

  Tcp::socket& socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Exchange> exchange_;
  bool ended_ = false;
};

/// Ends the watch, and tells whoever writes the reply that nobody waits for it unless it was sent: also when something
/// throws on the way.
template <typename Stream>
class AnswerGuard {
 public:
  AnswerGuard(std::shared_ptr<GoneWatch<Stream>> watch, std::shared_ptr<Exchange> exchange)
      : watch_(std::move(watch)), exchange_(std::move(exchange)) {}
  ~AnswerGuard() {
    watch_->end();
    if (!sent) exchange_->abort();
  }
  AnswerGuard(const AnswerGuard&) = delete;
  AnswerGuard& operator=(const AnswerGuard&) = delete;

  bool sent = false;

 private:
  std::shared_ptr<GoneWatch<Stream>> watch_;
  std::shared_ptr<Exchange> exchange_;
};

/// Sends what comes through the exchange; false where the connection cannot go on. The timer is cancelled by news.
template <typename Stream>
asio::awaitable<bool> HttpServer::State::pass_on(Stream& stream, Exchange& exchange, asio::steady_timer& news_timer,
                                                 unsigned version, bool keep_alive, bool with_body) {
  bool head_sent = false;
  for (;;) {
    Exchange::News news = exchange.take();
    if (news.aborted) co_return false;
    if (news.head && !news.streaming) {
      const bool good = co_await send(stream, *news.head, version, keep_alive, with_body);
      co_return good;
    }
    if (news.head) {
      head_sent = co_await send_head(stream, *news.head, version, keep_alive);
      if (!head_sent) co_return false;
    }
    if (head_sent && with_body && !news.body.empty()) {
      const bool good = co_await send_piece(stream, news.body, version);
      if (!good) co_return false;
    }
    if (news.finished) {
      bool good = true;
      if (with_body) good = co_await send_piece(stream, {}, version);
      co_return good;
    }
    if (news.head || !news.body.empty()) continue;
    beast::get_lowest_layer(stream).expires_never();
    ErrorCode cancelled;
    co_await news_timer.async_wait(no_throw(cancelled));
  }
}

template <typename Stream>
asio::awaitable<bool> HttpServer::State::answer(Stream& stream, HttpRequest request, unsigned version,
                                                bool keep_alive) {
  const Counted one(answering);
  auto exchange = std::make_shared<Exchange>();
  // The timer never fires: news cancels it. It belongs to the coroutine, whom late news may outlive.
  auto news_timer = std::make_shared<asio::steady_timer>(stream.get_executor());
  news_timer->expires_at(std::chrono::steady_clock::time_point::max());
  exchange->on_news([executor = stream.get_executor(), weak = std::weak_ptr(news_timer)] {
    asio::post(executor, [weak] {
      if (const auto timer = weak.lock()) timer->cancel();
    });
  });
  auto watch = std::make_shared<GoneWatch<Stream>>(stream, exchange);
  AnswerGuard<Stream> guard(watch, exchange);
  beast::get_lowest_layer(stream).expires_never();
  watch->start();
  // The same as GET, but nothing follows the head.
  const bool with_body = request.method != "HEAD";
  if (!with_body) request.method = "GET";
  handler(request, exchange);
  request = {};
  keep_alive = keep_alive && version >= 11;
  guard.sent = co_await pass_on(stream, *exchange, *news_timer, version, keep_alive, with_body);
  co_return guard.sent&& keep_alive;
}

/// Says what is wrong with a request that could not be read, where someone may still listen.
template <typename Stream>
asio::awaitable<void> HttpServer::State::refuse(Stream& stream, ErrorCode error) {
  constexpr unsigned kVersion = 11;
  if (error == http::error::body_limit) {
    co_await send(stream, plain_error(413, fmt::format("the body has more than {} bytes", options.max_body_bytes)),
                  kVersion, false, true);
  } else if (error == asio::error::no_buffer_space) {
    co_await send(stream, plain_error(503, "too many large requests are being read; come again later"), kVersion, false,
                  true);
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_await send(stream,
                  plain_error(431, fmt::format("the headers have more than {} bytes", options.max_header_bytes)),
                  kVersion, false, true);
  } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
             error.category() != http::make_error_code(http::error::bad_method).category()) {
    co_return;  // it left, or was too slow
  } else {
    co_await send(stream, plain_error(400, "this is not HTTP/1.1: " + error.message()), kVersion, false, true);
  }
  // Closing now would reset the connection under the client that still sends, and it would not see the reply.
  auto& lowest = beast::get_lowest_layer(stream);
  lowest.socket().shutdown(Tcp::socket::shutdown_send, error);
  lowest.expires_after(std::chrono::seconds(2));
  std::vector<char> ignored(65536);
  while (!error) co_await lowest.async_read_some(asio::buffer(ignored), no_throw(error));
}

/// Until the first byte of a request is there; false when the connection ends before.
template <typename Stream>
asio::awaitable<bool> HttpServer::State::wait_for_request(const std::shared_ptr<Stream>& stream,
                                                          beast::flat_buffer& buffer) {
  if (buffer.size() > 0) co_return true;
  {
    const std::lock_guard lock(idle_mutex);
    if (stopping) co_return false;
    idle.insert_or_assign(stream.get(), [weak = std::weak_ptr(stream)] {
      const auto alive = weak.lock();
      if (alive == nullptr) return;
      asio::post(alive->get_executor(), [alive] { beast::get_lowest_layer(*alive).cancel(); });
    });
  }
  ErrorCode error;
  beast::get_lowest_layer(*stream).expires_after(options.idle_timeout);
  const std::size_t count = co_await stream->async_read_some(buffer.prepare(4096), no_throw(error));
  {
    const std::lock_guard lock(idle_mutex);
    idle.erase(stream.get());
  }
  buffer.commit(count);
  co_return !error;
}

template <typename Stream>
asio::awaitable<ErrorCode> HttpServer::State::read_request(Stream& stream, beast::flat_buffer& buffer,
                                                           http::request_parser<http::string_body>& parser,
                                                           BodyShare& share) {
  ErrorCode error;
  parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
  beast::get_lowest_layer(stream).expires_after(options.read_timeout);  // for the whole of it
  co_await http::async_read_header(stream, buffer, parser, no_throw(error));
  if (!error && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    http::response<http::empty_body> go_on(http::status::continue_, parser.get().version());
    co_await http::async_write(stream, go_on, no_throw(error));
  }
  while (!error && !parser.is_done()) {
    co_await http::async_read_some(stream, buffer, parser, no_throw(error));
    if (!error && !share.grow(parser.get().body().size())) error = asio::error::no_buffer_space;
  }
  co_return error;
}

template <typename Stream>
asio::awaitable<void> HttpServer::State::serve(std::shared_ptr<Stream> stream) {
  beast::flat_buffer buffer(options.max_header_bytes + 65536);
  for (bool keep_alive = true; keep_alive && !stopping;) {
    const bool came = co_await wait_for_request(stream, buffer);
    if (!came) break;
    http::request_parser<http::string_body> parser;
    HttpRequest request;
    {
      BodyShare share(body_bytes, options.max_all_bodies_bytes);
      const ErrorCode error = co_await read_request(*stream, buffer, parser, share);
      if (error) {
        co_await refuse(*stream, error);
        break;
      }
      request = to_request(parser);
    }
    keep_alive = parser.get().keep_alive() && !stopping;
    const bool goes_on = co_await answer(*stream, std::move(request), parser.get().version(), keep_alive);
    if (!goes_on) break;
  }
}

asio::awaitable<void> HttpServer::State::serve_tls(std::shared_ptr<TlsStream> stream) {
  ErrorCode error;
  beast::get_lowest_layer(*stream).expires_after(options.read_timeout);
  co_await stream->async_handshake(asio::ssl::stream_base::server, no_throw(error));
  if (error) co_return;
  co_await serve(stream);
  beast::get_lowest_layer(*stream).expires_after(std::chrono::seconds(2));
  co_await stream->async_shutdown(no_throw(error));
}

template <typename Stream>
void HttpServer::State::start(std::shared_ptr<Stream> stream) {
  const auto executor = stream->get_executor();
  const auto done = [this, stream](const std::exception_ptr&) {
    ErrorCode ignored;
    beast::get_lowest_layer(*stream).socket().shutdown(Tcp::socket::shutdown_both, ignored);
    beast::get_lowest_layer(*stream).close();
    --connections;
  };
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    asio::co_spawn(executor, serve_tls(stream), done);
  } else {
    asio::co_spawn(executor, serve(stream), done);
  }
}

asio::awaitable<void> HttpServer::State::accept() {
  while (!stopping) {
    ErrorCode error;
    Tcp::socket socket(asio::make_strand(context));
    co_await acceptor.async_accept(socket, no_throw(error));
    if (error == asio::error::operation_aborted) break;
    if (error) {  // no descriptors left, most likely: let some connections end
      asio::steady_timer pause(acceptor_strand, std::chrono::milliseconds(50));
      co_await pause.async_wait(no_throw(error));
      continue;
    }
    if (connections >= options.max_connections) continue;  // closes it
    ++connections;
    socket.set_option(Tcp::no_delay(true), error);
    watch_for_dead_clients(socket);
    if (tls) {
      start(std::make_shared<TlsStream>(PlainStream(std::move(socket)), *tls));
    } else {
      start(std::make_shared<PlainStream>(std::move(socket)));
    }
  }
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : state_(std::make_unique<State>(options, std::move(handler))) {
  state_->use_tls();
  state_->listen();
  asio::co_spawn(state_->acceptor_strand, state_->accept(), asio::detached);
  for (int i = 0; i < options.threads; ++i) {
    state_->threads.emplace_back([this] { state_->context.run(); });
  }
}

HttpServer::~HttpServer() {
  stop_accepting();
  state_->context.stop();
  for (std::thread& thread : state_->threads) thread.join();
}

std::uint16_t HttpServer::port() const {
  return state_->port;
}

std::size_t HttpServer::connections() const {
  return state_->connections;
}

std::size_t HttpServer::answering() const {
  return state_->answering;
}

void HttpServer::stop_accepting() {
  asio::post(state_->acceptor_strand, [this] {
    ErrorCode ignored;
    state_->acceptor.close(ignored);
  });
  const std::lock_guard lock(state_->idle_mutex);
  state_->stopping = true;
  for (const auto& [stream, end] : state_->idle) end();
}

}  // namespace pergola
