#include "cli/console.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "cli/interrupt.h"

namespace pergola {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether the cursor stands behind a progress bar.
bool bar_is_drawn = false;

void end_bar() {
  if (bar_is_drawn) std::fputc('\n', stderr);
  bar_is_drawn = false;
}

/// Decides what to show of work and when.
class ProgressDisplay {
 public:
  void show(const std::string& stage, std::uint64_t done, std::uint64_t total) {
    const Clock::time_point now = Clock::now();
    if (stage != stage_ || done < done_) begin(stage, done, now);
    done_ = done;
    if (finished_) return;
    finished_ = total > 0 && done >= total;
    if (!is_due(now)) return;
    shown_ = now;
    terminal_ ? draw(done, total) : print_message(line(done, total));
    if (finished_) end_bar();
  }

 private:
  void begin(const std::string& stage, std::uint64_t done, Clock::time_point now) {
    stage_ = stage;
    finished_ = false;
    started_ = now;
    first_ = done;
    shown_ = terminal_ ? Clock::time_point() : now;
  }

  /// A bar is redrawn ten times a second. A log gets a line every ten seconds, and none at the end of what took under
  /// one.
  bool is_due(Clock::time_point now) const {
    if (terminal_) return finished_ || now - shown_ >= std::chrono::milliseconds(100);
    return finished_ ? now - started_ >= std::chrono::seconds(1) : now - shown_ >= std::chrono::seconds(10);
  }

  std::string line(std::uint64_t done, std::uint64_t total) const {
    return fmt::format("{}: {} of {} ({}%){}", stage_, done, total, total > 0 ? 100 * done / total : 0,
                       time_left(done, total));
  }

  /// At the rate since this stage was first heard of; nothing in its first seconds.
  std::string time_left(std::uint64_t done, std::uint64_t total) const {
    const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
    if (elapsed < 5 || done <= first_ || done >= total) return "";
    return fmt::format(", {} left",
                       human_seconds(elapsed * static_cast<double>(total - done) / static_cast<double>(done - first_)));
  }

  void draw(std::uint64_t done, std::uint64_t total) {
    constexpr std::size_t kWidth = 30;
    const std::size_t filled = total > 0 ? static_cast<std::size_t>(kWidth * done / total) : 0;
    if (bar_is_drawn) std::fputs("\r\x1b[K", stderr);
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    std::fputs(fmt::format("[{}] {}", bar, line(done, total)).c_str(), stderr);
    std::fflush(stderr);
    bar_is_drawn = true;
  }

  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool finished_ = false;
  std::string stage_;
  std::uint64_t done_ = 0;
  std::uint64_t first_ = 0;
  Clock::time_point started_;
  Clock::time_point shown_;
};

}  // namespace

void write_output(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail({}, "cannot write to standard output: {}", std::strerror(errno));
}

void print_message(const std::string& text) {
  end_bar();
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

Progress show_progress() {
  auto display = std::make_shared<ProgressDisplay>();
  return [display](const std::string& stage, std::uint64_t done, std::uint64_t total) {
    if (interrupt_requested().load(std::memory_order_relaxed)) throw Interrupted();
    display->show(stage, done, total);
  };
}

}  // namespace pergola
