#include "trellis/tile.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace pergola {

static_assert(std::endian::native == std::endian::little, "packed words are read in place");

void decode_tile_states(const std::byte* tile, int bits, std::span<std::uint16_t, kTileWeights> states) {
  assert(bits >= kMinBits && bits <= kMaxBits);
  std::uint32_t words[8 * kMaxBits];
  std::memcpy(words, tile, static_cast<std::size_t>(tile_bytes(bits)));
  const std::uint32_t mask = (1u << bits) - 1;
  // The stream is cyclic: the state before position 0 is that of position 255, the last 16 bits.
  std::uint32_t state = words[8 * bits - 1] & 0xFFFFu;
  std::uint64_t window = 0;
  int held = 0;
  const std::uint32_t* next = words;
  for (std::uint16_t& out : states) {
    if (held < bits) {
      window = (window << 32) | *next++;
      held += 32;
    }
    held -= bits;
    state = ((state << bits) | (static_cast<std::uint32_t>(window >> held) & mask)) & 0xFFFFu;
    out = static_cast<std::uint16_t>(state);
  }
}

void pack_tile(std::span<const std::uint16_t, kTileWeights> symbols, int bits, std::byte* tile) {
  assert(bits >= kMinBits && bits <= kMaxBits);
  const std::uint32_t mask = (1u << bits) - 1;
  std::uint64_t window = 0;
  int held = 0;
  for (const std::uint16_t symbol : symbols) {
    window = (window << bits) | (symbol & mask);
    held += bits;
    if (held < 32) continue;
    held -= 32;
    const auto word = static_cast<std::uint32_t>(window >> held);
    std::memcpy(tile, &word, sizeof word);
    tile += sizeof word;
  }
}

}  // namespace pergola
