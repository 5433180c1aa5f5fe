#include "cli/interrupt.h"

#include <csignal>

namespace pergola {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch nothing else

extern "C" void on_signal(int) {
  requested.store(true, std::memory_order_relaxed);
}

}  // namespace

std::atomic<bool>& interrupt_requested() {
  return requested;
}

void catch_interrupts() {
  requested.store(false, std::memory_order_relaxed);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags =
      SA_RESETHAND;  // the second signal meets the default action; reads of a prompt are interrupted, not restarted
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace pergola
