#include "backend/cpu/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "base/units.h"

namespace pergola {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kSlabBytes = std::int64_t{256} << 20;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::byte* map_slab(std::int64_t bytes) {
  // One huge page more than asked for, so that the part in use starts at one. The rest is never touched.
  void* mapped = ::mmap(nullptr, static_cast<std::size_t>(bytes + kHugePage), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    fail({}, "the system has no {} of memory left for weights", human_bytes(static_cast<double>(bytes)));
  auto* begin = static_cast<std::byte*>(mapped);
  const std::int64_t skip = -reinterpret_cast<std::intptr_t>(begin) & (kHugePage - 1);
  if (skip > 0) ::munmap(begin, static_cast<std::size_t>(skip));
  if (skip < kHugePage) ::munmap(begin + skip + bytes, static_cast<std::size_t>(kHugePage - skip));
  ::madvise(begin + skip, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a refusal costs speed only
  return begin + skip;
}

}  // namespace

WeightArena::~WeightArena() {
  for (const Slab& slab : slabs_) ::munmap(slab.begin, static_cast<std::size_t>(slab.size));
}

std::byte* WeightArena::allocate(std::int64_t bytes) {
  assert(bytes >= 0);
  const std::int64_t needed = round_up(bytes, kAlignment);
  if (slabs_.empty() || slabs_.back().size - slabs_.back().used < needed) {
    const std::int64_t size = round_up(std::max(needed, kSlabBytes), kHugePage);
    slabs_.push_back({map_slab(size), size, 0});
  }
  Slab& slab = slabs_.back();
  std::byte* result = slab.begin + slab.used;
  slab.used += needed;
  handed_out_ += needed;
  return result;
}

}  // namespace pergola
