#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/access.h"
#include "server/api_error.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/model_service.h"

namespace pergola {

/// From a request to its handler.
class Router {
 public:
  /// `stall_seconds`: work that waits longer than this for a step to end makes /health say so.
  explicit Router(AccessRules access, double stall_seconds = 10)
      : access_(std::move(access)), stall_seconds_(stall_seconds) {}

  /// Until then every route answers 503. `service` outlives the router.
  void set_ready(const ModelService& service) { service_.store(&service); }
  /// From now on every route answers 503 again.
  void set_stopped() { service_.store(nullptr); }

  /// Answers, now or later, and never throws for what a request can cause.
  void handle(const HttpRequest& request, const std::shared_ptr<Exchange>& to) const;

 private:
  void dispatch(const HttpRequest& request, const std::shared_ptr<Exchange>& to) const;
  void refuse_with(const ApiError& error, const HttpRequest& request, const std::shared_ptr<Exchange>& to) const;
  void handle_health(const std::shared_ptr<Exchange>& to) const;

  AccessRules access_;
  double stall_seconds_;
  mutable RequestCounter counter_;
  std::atomic<const ModelService*> service_{nullptr};
};

}  // namespace pergola
