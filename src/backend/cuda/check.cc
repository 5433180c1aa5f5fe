#include "backend/cuda/check.h"

#include <map>
#include <mutex>
#include <set>

#include "backend/cuda/launch.h"
#include "base/error.h"

namespace pergola::cuda {

void fail_cuda(cudaError_t error, std::string_view doing) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      fail({}, "the CUDA device has not enough free memory ({})", doing);
    case cudaErrorNoDevice:
      fail({.field = "--backend"}, "there is no CUDA device on this machine");
    case cudaErrorInsufficientDriver:
      fail({.field = "--backend"}, "the NVIDIA driver is missing or older than CUDA {}.{} needs", CUDART_VERSION / 1000,
           CUDART_VERSION % 1000 / 10);
    case cudaErrorNoKernelImageForDevice:
      fail({.field = "--backend"}, "this build has no kernels for the CUDA device's architecture");
    default:
      fail({}, "CUDA failed while {}: {}", doing, cudaGetErrorString(error));
  }
}

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
