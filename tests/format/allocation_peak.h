#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace pergola::testing {

/// Most bytes of the heap that were in use at one time while `work` ran, beyond those in use before. Counts operator
/// new of the whole program.
std::size_t allocation_peak(const std::function<void()>& work);

/// What a bad file may cost: 64 times its header and 64 MB.
inline std::size_t allowed_peak(std::size_t header_bytes) {
  return 64 * header_bytes + (std::size_t{64} << 20);
}

/// Runs `work`, which must throw pergola::Error, within the memory allowed for a header of that size; returns the
/// message.
std::string refusal(std::size_t header_bytes, const std::function<void()>& work);

}  // namespace pergola::testing
