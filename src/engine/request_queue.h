#pragma once

#include <functional>
#include <vector>

#include "engine/scheduler.h"
#include "engine/served_request.h"

namespace pergola {

/// Where requests are handed to whoever computes them. Members may be called from any thread.
class RequestQueue {
 public:
  virtual ~RequestQueue() = default;

  /// Queues requests, all or none: none when they are more than the queue has room for or it is stopping; the result is
  /// then empty and no listener is ever called. Each was found good by check_prompt and validate. `taken` is called
  /// before any listener can be, under the queue's lock: it must not call back.
  virtual std::vector<Ticket> submit(std::vector<ServedRequest> requests,
                                     const std::function<void(const std::vector<Ticket>&)>& taken) = 0;
  std::vector<Ticket> submit(std::vector<ServedRequest> requests) { return submit(std::move(requests), {}); }

  /// Takes effect before the next step.
  virtual void cancel(Ticket ticket) = 0;

  /// Whether no request is taken any more.
  virtual bool stopping() const = 0;

  virtual SchedulerStats stats() const = 0;

  /// Seconds since work is waiting without a step being finished; 0 when there is none.
  virtual double stalled_seconds() const = 0;
};

}  // namespace pergola
