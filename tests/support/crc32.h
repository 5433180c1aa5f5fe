#pragma once

#include <cstddef>
#include <cstdint>

namespace pergola::testing {

/// CRC-32 as zlib computes it (polynomial 0xEDB88320).
inline std::uint32_t crc32(const void* data, std::size_t bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    crc ^= at[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

}  // namespace pergola::testing
