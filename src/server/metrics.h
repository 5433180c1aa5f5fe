#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "engine/scheduler.h"

namespace pergola {

/// Counts what routes answered at once. Safe to use from several threads.
class RequestCounter {
 public:
  /// `status` 200 also stands for requests that were taken and are answered later.
  void count(int status);
  std::map<int, std::uint64_t> counts() const;

 private:
  mutable std::mutex mutex_;
  std::map<int, std::uint64_t> counts_;
};

/// What the server is doing and has done, in the text format of Prometheus. docs/server.md lists the names.
std::string metrics_text(const SchedulerStats& stats, const std::map<int, std::uint64_t>& requests_by_status);

}  // namespace pergola
