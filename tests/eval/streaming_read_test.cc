#include "eval/streaming_read.h"

#include <gtest/gtest.h>

#include <vector>

#include "eval/streaming_loads.h"

namespace pergola {
namespace {

TEST(StreamingRead, EveryInstructionSetReadsEveryWord) {
  struct alignas(64) Line {
    std::uint64_t words[8];
  };
  std::vector<Line> lines(1024);
  std::uint64_t expected = 0;
  std::uint64_t value = 1;
  for (Line& line : lines) {
    for (std::uint64_t& word : line.words) {
      word = value *= 6364136223846793005u;
      expected ^= word;
    }
  }
  const auto* from = reinterpret_cast<const std::byte*>(lines.data());
  const std::size_t bytes = lines.size() * sizeof(Line);
  EXPECT_EQ(load_all_generic(from, bytes), expected);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(load_all_avx2(from, bytes), expected);
  }
  if (__builtin_cpu_supports("avx512f")) {
    EXPECT_EQ(load_all_avx512(from, bytes), expected);
  }
#endif
}

TEST(StreamingRead, MeasuresSomethingPlausible) {
  StreamingReadMeter meter(1, false, std::uint64_t{64} << 20);
  const StreamingRead read = meter.measure(3);
  EXPECT_GT(read.bytes_per_second.median, 1e8);
  EXPECT_LT(read.bytes_per_second.median, 1e13);
  EXPECT_LE(read.bytes_per_second.low, read.bytes_per_second.median);
  EXPECT_EQ(read.threads, 1);
  EXPECT_EQ(read.bytes, std::uint64_t{64} << 20);
}

}  // namespace
}  // namespace pergola
