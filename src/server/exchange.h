#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace pergola {

/// The reply to one request on its way from whoever writes it (a handler, the engine's thread) to the connection that
/// sends it. Members may be called from any thread.
class Exchange {
 public:
  /// Bytes that may wait for a client that does not read; beyond that its reply is aborted.
  static constexpr std::size_t kMostBuffered = std::size_t{4} << 20;

  // For the writer. Once aborted everything is ignored.

  /// The whole reply.
  void respond(HttpResponse response);
  /// The start of a reply whose body comes in pieces.
  void start_stream(HttpResponse head);
  void write(std::string_view piece);
  void finish();
  /// What to do when the client is gone: called once, at once if it is gone already. Not under a lock.
  void on_abort(std::function<void()> call);

  // For the connection.

  /// What came since the last call.
  struct News {
    std::optional<HttpResponse> head;
    bool streaming = false;
    std::string body;
    bool finished = false;  ///< nothing more comes
    bool aborted = false;
  };
  News take();
  /// Called, from any thread, whenever there is news; perhaps once more while the last member of the connection is
  /// gone already. Set before the writer starts.
  void on_news(std::function<void()> call) { on_news_ = std::move(call); }
  /// The client is gone.
  void abort();

 private:
  std::function<void()> on_news_;
  std::mutex mutex_;
  News news_;
  bool aborted_ = false;
  std::function<void()> on_abort_;
};

}  // namespace pergola
