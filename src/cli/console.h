#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

#include "base/progress.h"

namespace pergola {

/// Writes to standard output. Throws Error when it cannot (a full disk, a closed pipe).
void write_output(const std::string& text);

template <typename... Args>
void print_output(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

/// One line to standard error, which is where everything goes that is not a result. Ends a progress bar that stands
/// there.
void print_message(const std::string& text);

template <typename... Args>
void message(fmt::format_string<Args...> format, Args&&... args) {
  print_message(fmt::format(format, std::forward<Args>(args)...));
}

/// What long work calls to say how far it is. A terminal gets a bar that redraws itself, anything else a line now and
/// then. Throws Interrupted after Ctrl-C.
Progress show_progress();

/// Ctrl-C came while something was running that has no result without its end.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

}  // namespace pergola
