#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/request_queue.h"

namespace pergola {

/// A scheduler with a thread of its own that steps while there is work.
class EngineLoop final : public RequestQueue {
 public:
  /// `max_waiting`: most requests that wait for a slot. The engine outlives the loop.
  EngineLoop(Engine& engine, const SchedulerOptions& options, std::int64_t max_waiting);
  /// Ends every request as cancelled.
  ~EngineLoop() override;

  using RequestQueue::submit;
  std::vector<Ticket> submit(std::vector<ServedRequest> requests,
                             const std::function<void(const std::vector<Ticket>&)>& taken) override;
  void cancel(Ticket ticket) override;
  bool stopping() const override;
  SchedulerStats stats() const override;
  double stalled_seconds() const override;

  /// No request is taken any more; those that are there have `grace` to end.
  void stop(std::chrono::milliseconds grace);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void take_mail();

  std::int64_t max_waiting_;
  Scheduler scheduler_;  ///< of the thread alone

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::pair<Ticket, ServedRequest>> submitted_;
  std::vector<Ticket> cancelled_;
  Ticket next_ticket_ = 1;
  std::int64_t waiting_ = 0;  ///< in the scheduler, after its last step
  bool busy_ = false;
  bool stopping_ = false;
  bool ended_ = false;
  Clock::time_point last_step_ = Clock::now();
  SchedulerStats stats_;

  std::thread thread_;
};

}  // namespace pergola
