#include "format/allocation_peak.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/error.h"

namespace {

std::atomic<std::size_t> in_use{0};
std::atomic<std::size_t> highest{0};

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = in_use += ::malloc_usable_size(memory);
  for (std::size_t before = highest; now > before && !highest.compare_exchange_weak(before, now);) {
  }
  return memory;
}

void uncount(void* memory) {
  if (memory != nullptr) in_use -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
  uncount(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  uncount(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  uncount(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  uncount(memory);
}

namespace pergola::testing {

std::size_t allocation_peak(const std::function<void()>& work) {
  const std::size_t before = in_use;
  highest = before;
  work();
  return highest - before;
}

std::string refusal(std::size_t header_bytes, const std::function<void()>& work) {
  std::string message;
  const std::size_t peak = allocation_peak([&] {
    try {
      work();
    } catch (const Error& error) {
      message = error.what();
    }
  });
  EXPECT_FALSE(message.empty()) << "nothing was refused";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LE(peak, allowed_peak(header_bytes));
  return message;
}

TEST(AllocationPeak, CountsWhatIsInUse) {
  const std::size_t peak = allocation_peak([] {
    std::vector<char> one(1000000);
    { std::vector<char> two(3000000); }
    std::vector<char> three(2000000);
  });
  EXPECT_GE(peak, 4000000u);
  EXPECT_LT(peak, 4100000u);
}

}  // namespace pergola::testing
