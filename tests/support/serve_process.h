#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http_client.h"

namespace pergola::testing {

/// `pergola serve` as a process of its own, on a port that is free.
class ServeProcess {
 public:
  /// Waits until it serves or has ended; throws std::runtime_error with its words when it ends without serving.
  ServeProcess(const std::string& program, const std::string& folder, const std::vector<std::string>& more = {});
  /// Kills it if it still runs.
  ~ServeProcess();
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  const std::string& url() const { return url_; }
  HttpClient client() const { return HttpClient(url_); }
  void signal(int number) const;
  /// Waits for its end, at most two minutes; the exit code, or minus the signal that ended it.
  int wait();
  /// What it has said on standard error.
  std::string said() const;

 private:
  void listen_to(int descriptor);

  pid_t child_ = -1;
  std::string url_;
  std::thread reader_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  bool closed_ = false;
};

}  // namespace pergola::testing
