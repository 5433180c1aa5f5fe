#pragma once

#include "backend/cpu/float_kernels.h"
#include "backend/cpu/work_space.h"
#include "base/thread_pool.h"

namespace pergola::cpu {

/// What every operation of the CPU backend works with.
struct Context {
  ThreadPool& pool;
  const FloatKernels& floats;
  WorkSpace& work;
};

/// Values that one member handles faster than it could share them with others: a fork and join takes a microsecond or
/// two.
inline constexpr std::int64_t kSerialValues = 16 * 1024;

/// Calls work(row) for every row, spread over the team when rows * width values are worth it.
template <typename Work>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t width, const Work& work) {
  if (rows < 2 || rows * width < kSerialValues) {
    for (std::int64_t row = 0; row < rows; ++row) work(row);
    return;
  }
  const std::int64_t grain = (kSerialValues / 4 + width - 1) / width;
  pool.parallel_for((rows + grain - 1) / grain, [&](std::int64_t part, int) {
    const std::int64_t end = part * grain + grain < rows ? part * grain + grain : rows;
    for (std::int64_t row = part * grain; row < end; ++row) work(row);
  });
}

}  // namespace pergola::cpu
