#include "engine/engine_loop.h"

#include <utility>

namespace pergola {

EngineLoop::EngineLoop(Engine& engine, const SchedulerOptions& options, std::int64_t max_waiting)
    : max_waiting_(max_waiting), scheduler_(engine, options), stats_(scheduler_.stats()), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  stop(std::chrono::milliseconds(0));
}

std::vector<Ticket> EngineLoop::submit(std::vector<ServedRequest> requests,
                                       const std::function<void(const std::vector<Ticket>&)>& taken) {
  const std::lock_guard lock(mutex_);
  const auto wanted = static_cast<std::int64_t>(submitted_.size() + requests.size());
  if (stopping_ || waiting_ + wanted > max_waiting_) return {};
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < requests.size(); ++i) tickets.push_back(next_ticket_++);
  // What can fail comes before the first request is in the queue.
  submitted_.reserve(submitted_.size() + requests.size());
  if (taken) taken(tickets);
  for (std::size_t i = 0; i < requests.size(); ++i) submitted_.emplace_back(tickets[i], std::move(requests[i]));
  if (!busy_) last_step_ = Clock::now();
  busy_ = true;
  wake_.notify_all();
  return tickets;
}

void EngineLoop::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(ticket);
  wake_.notify_all();
}

void EngineLoop::take_mail() {
  std::vector<std::pair<Ticket, ServedRequest>> submitted;
  std::vector<Ticket> cancelled;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
    waiting_ += static_cast<std::int64_t>(submitted.size());
  }
  for (auto& [ticket, request] : submitted) scheduler_.submit(ticket, std::move(request));
  for (const Ticket ticket : cancelled) scheduler_.cancel(ticket);
}

void EngineLoop::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      busy_ = !scheduler_.idle() || !submitted_.empty();
      wake_.wait(lock, [&] { return ended_ || busy_ || !submitted_.empty() || !cancelled_.empty(); });
      if (ended_) break;
    }
    take_mail();
    scheduler_.step();
    const std::lock_guard lock(mutex_);
    scheduler_.read_stats(stats_);
    waiting_ = stats_.waiting;
    last_step_ = Clock::now();
    if (scheduler_.idle() && submitted_.empty()) {
      busy_ = false;
      wake_.notify_all();  // whoever waits for the end of work
    }
  }
  take_mail();
  scheduler_.end_all();
}

void EngineLoop::stop(std::chrono::milliseconds grace) {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.wait_for(lock, grace, [&] { return !busy_; });
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool EngineLoop::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

SchedulerStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = stats_;
  stats.waiting += static_cast<std::int64_t>(submitted_.size());
  return stats;
}

double EngineLoop::stalled_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_ ? std::chrono::duration<double>(Clock::now() - last_step_).count() : 0;
}

}  // namespace pergola
