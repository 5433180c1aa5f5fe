#pragma once

#include <atomic>

namespace pergola {

/// Set by the first Ctrl-C (or SIGTERM). Whatever runs ends at its next step.
std::atomic<bool>& interrupt_requested();

/// From now on the first Ctrl-C sets the flag and the second ends the process at once. Clears the flag.
void catch_interrupts();

}  // namespace pergola
