#include "backend/cpu/work_space.h"

#include <cstdlib>

#include "base/error.h"
#include "base/units.h"

namespace pergola {

void WorkSpace::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

WorkSpace::Memory WorkSpace::allocate(std::int64_t bytes) {
  // Whole pages, so that two threads' parts share no cache line.
  constexpr std::int64_t kPage = 4096;
  const std::int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, static_cast<std::size_t>(rounded)));
  if (memory == nullptr)
    fail({}, "the system has no {} of memory left for work space", human_bytes(static_cast<double>(bytes)));
  return Memory(memory);
}

void WorkSpace::reserve(const WorkNeeds& needs) {
  if (needs.shared > size_.shared) {
    shared_.reset();
    shared_ = allocate(needs.shared);
    size_.shared = needs.shared;
  }
  if (needs.per_thread > size_.per_thread) {
    for (Memory& own : own_) {
      own.reset();
      own = allocate(needs.per_thread);
    }
    size_.per_thread = needs.per_thread;
  }
}

}  // namespace pergola
