#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "eval/statistics.h"

namespace pergola {

/// What the processor reads out of memory when it does nothing else: the roof of a decode step.
struct StreamingRead {
  Measured bytes_per_second;
  std::string instruction_set;  ///< of the loads: "avx512", "avx2" or "generic"
  int threads = 0;
  std::uint64_t bytes = 0;  ///< size of the area that is read
};

/// Reads one large area over and over with the widest loads of the processor. Keeps the area, so that the roof can be
/// measured again between other measurements of the same run.
class StreamingReadMeter {
 public:
  /// `bytes` should be far above the last cache: 1 GiB, or a quarter of what is available if that is less.
  explicit StreamingReadMeter(int threads, bool pin = false, std::uint64_t bytes = default_bytes());
  ~StreamingReadMeter();
  StreamingReadMeter(const StreamingReadMeter&) = delete;
  StreamingReadMeter& operator=(const StreamingReadMeter&) = delete;

  static std::uint64_t default_bytes();

  StreamingRead measure(int repeats = 5);

 private:
  double pass_seconds();

  ThreadPool pool_;
  std::uint64_t bytes_;
  std::byte* area_;
};

/// Name of the widest loads that this processor has.
const char* streaming_instruction_set();

}  // namespace pergola
