#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace pergola {

/// What this process may still take of the machine's memory.
struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string limited_by;  ///< "this machine" or "its control group": whose limit `bytes` is
};

/// The smaller of the kernel's MemAvailable and what every control group above this process still allows (versions 1
/// and 2). Page cache counts as available: the kernel gives it back. `root` is where /proc and /sys are found, another
/// folder in tests. Throws Error without a readable /proc/meminfo.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

}  // namespace pergola
