#include "eval/streaming_read.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/machine_memory.h"
#include "eval/streaming_loads.h"

namespace pergola {
namespace {

/// What one thread reads at a time: long enough for the hardware's prefetch to run, short enough to share out evenly.
constexpr std::uint64_t kBlock = std::uint64_t{4} << 20;

using LoadAll = std::uint64_t (*)(const std::byte*, std::size_t);

struct Loads {
  const char* name;
  LoadAll function;
};

Loads widest_loads() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {"avx512", load_all_avx512};
  if (__builtin_cpu_supports("avx2")) return {"avx2", load_all_avx2};
#endif
  return {"generic", load_all_generic};
}

}  // namespace

std::uint64_t load_all_generic(const std::byte* from, std::size_t bytes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < bytes / 8; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] ^= words[i + j];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

const char* streaming_instruction_set() {
  return widest_loads().name;
}

std::uint64_t StreamingReadMeter::default_bytes() {
  return std::clamp(available_memory().bytes / 4, std::uint64_t{64} << 20, std::uint64_t{1} << 30);
}

StreamingReadMeter::StreamingReadMeter(int threads, bool pin, std::uint64_t bytes)
    : pool_(threads, pin), bytes_((bytes + kBlock - 1) / kBlock * kBlock), area_(nullptr) {
  void* area = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED)
    fail({}, "cannot take {} to measure memory bandwidth: {}", human_bytes(static_cast<double>(bytes_)),
         std::strerror(errno));
  ::madvise(area, bytes_, MADV_HUGEPAGE);  // only a hint: a refusal costs speed, not correctness
  area_ = static_cast<std::byte*>(area);
  pool_.parallel_for(static_cast<std::int64_t>(bytes_ / kBlock), [this](std::int64_t block, int) {
    auto* words = reinterpret_cast<std::uint64_t*>(area_ + static_cast<std::uint64_t>(block) * kBlock);
    for (std::uint64_t i = 0; i < kBlock / 8; ++i)
      words[i] = (i + 1) * 0x9E3779B97F4A7C15u;  // pages of equal bytes could be shared
  });
}

StreamingReadMeter::~StreamingReadMeter() {
  ::munmap(area_, bytes_);
}

double StreamingReadMeter::pass_seconds() {
  const LoadAll load_all = widest_loads().function;
  std::atomic<std::uint64_t> sink{0};
  const auto start = std::chrono::steady_clock::now();
  pool_.parallel_for(static_cast<std::int64_t>(bytes_ / kBlock), [&](std::int64_t block, int) {
    sink.fetch_xor(load_all(area_ + static_cast<std::uint64_t>(block) * kBlock, kBlock), std::memory_order_relaxed);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

StreamingRead StreamingReadMeter::measure(int repeats) {
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) rates.push_back(static_cast<double>(bytes_) / pass_seconds());
  return {measured(rates), widest_loads().name, pool_.size(), bytes_};
}

}  // namespace pergola
