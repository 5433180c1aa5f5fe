#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pergola {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long a member looks for new work before it sleeps: longer than the serial parts of a decode step, far shorter
/// than a person notices.
constexpr std::chrono::microseconds kSpin{100};

/// Waits until `value` differs from `seen`: spins, then sleeps in the kernel.
void wait_for_change(const std::atomic<std::uint64_t>& value, std::uint64_t seen) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != seen) return;
      relax();
    }
    if (std::chrono::steady_clock::now() > until) break;
  }
  value.wait(seen, std::memory_order_acquire);
}

/// What the process was started with: a pool that binds its caller must not narrow the pools that follow.
const cpu_set_t& allowed_processors() {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    return set;
  }();
  return allowed;
}

void unpin(pthread_t thread) {
  ::pthread_setaffinity_np(thread, sizeof(cpu_set_t), &allowed_processors());
}

void pin_to(pthread_t thread, const cpu_set_t& allowed, int member) {
  int wanted = member % std::max(1, CPU_COUNT(&allowed));
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ::pthread_setaffinity_np(thread, sizeof one, &one);  // a refusal costs speed only
    return;
  }
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> threads;
  // A job is published by raising `epoch`; a member leaves it by raising `left`. The job's fields are written only
  // while nobody is inside.
  alignas(64) std::atomic<std::uint64_t> epoch{0};
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<std::uint64_t> left{0};
  std::int64_t count = 0;
  Invoke invoke = nullptr;
  void* context = nullptr;
  bool stop = false;
  bool pinned = false;
  std::mutex error_mutex;
  std::exception_ptr error;

  void take_part(int member) {
    try {
      for (;;) {
        const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) return;
        invoke(context, index, member);
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  void member_loop(int member) {
    std::uint64_t seen = 0;
    for (;;) {
      wait_for_change(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop) return;
      take_part(member);
      left.fetch_add(1, std::memory_order_acq_rel);
      left.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : state_(std::make_unique<State>()) {
  const cpu_set_t& allowed = allowed_processors();
  state_->pinned = pin;
  if (pin) pin_to(::pthread_self(), allowed, 0);
  for (int member = 1; member < threads; ++member) {
    state_->threads.emplace_back([state = state_.get(), member] { state->member_loop(member); });
    const pthread_t thread = state_->threads.back().native_handle();
    pin ? pin_to(thread, allowed, member) : unpin(thread);  // threads inherit the binding of their maker
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->epoch.fetch_add(1, std::memory_order_acq_rel);
  state_->epoch.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
  if (state_->pinned) unpin(::pthread_self());
}

int ThreadPool::size() const {
  return static_cast<int>(state_->threads.size()) + 1;
}

void ThreadPool::run(std::int64_t count, Invoke invoke, void* context) {
  State& state = *state_;
  const auto helpers = static_cast<std::uint64_t>(state.threads.size());
  if (helpers == 0 || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) invoke(context, index, 0);
    return;
  }
  state.count = count;
  state.invoke = invoke;
  state.context = context;
  state.error = nullptr;
  state.left.store(0, std::memory_order_relaxed);
  state.next.store(0, std::memory_order_relaxed);
  state.epoch.fetch_add(1, std::memory_order_acq_rel);
  state.epoch.notify_all();
  state.take_part(0);
  for (std::uint64_t seen = state.left.load(std::memory_order_acquire); seen != helpers;
       seen = state.left.load(std::memory_order_acquire)) {
    wait_for_change(state.left, seen);
  }
  if (state.error) std::rethrow_exception(state.error);
}

int ThreadPool::available_processors() {
  return std::max(1, CPU_COUNT(&allowed_processors()));
}

}  // namespace pergola
