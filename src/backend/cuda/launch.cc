#include "backend/cuda/launch.h"

#include <map>
#include <mutex>
#include <set>

namespace pergola::cuda {

void allow_shared_bytes(const void* kernel, std::size_t bytes) {
  constexpr std::size_t kAlwaysThere = 16 << 10;  // kernels declare up to 32 kB more
  if (bytes <= kAlwaysThere) return;
  static std::mutex mutex;
  static std::map<const void*, std::size_t> allowed;
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[kernel];
  if (bytes <= most) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "reserving shared memory");
  most = bytes;
}

void allow_large_clusters(const void* kernel) {
  static std::mutex mutex;
  static std::set<const void*> allowed;
  const std::lock_guard lock(mutex);
  if (!allowed.insert(kernel).second) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "allowing large clusters");
}

}  // namespace pergola::cuda
