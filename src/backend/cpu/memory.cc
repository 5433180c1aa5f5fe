#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include "base/error.h"
#include "base/units.h"

namespace pergola::cpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{1} << 21;

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Memory::Memory(std::size_t bytes, std::string_view what) : bytes_(bytes) {
  const bool huge = bytes >= kHugePage;
  if (bytes > SIZE_MAX / 2) fail({}, "there is not enough memory for {}", what);
  mapped_ = rounded_up(bytes > 0 ? bytes : 1, kPage) + (huge ? kHugePage : 0);
  void* mapping = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    fail({}, "there is not enough memory for {}: the system refused {}", what, human_bytes(static_cast<double>(bytes)));
  }
  mapping_ = static_cast<std::byte*>(mapping);
  address_ = mapping_;
  if (huge) {
    const auto start = reinterpret_cast<std::uintptr_t>(mapping_);
    address_ = mapping_ + (rounded_up(start, kHugePage) - start);
    ::madvise(address_, bytes, MADV_HUGEPAGE);  // a refusal costs speed only
  }
}

Memory::~Memory() {
  ::munmap(mapping_, mapped_);
}

}  // namespace pergola::cpu
