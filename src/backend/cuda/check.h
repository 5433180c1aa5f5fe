#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace pergola::cuda {

/// Throws Error with one sentence about what the device refused; `doing` completes "CUDA failed while ...".
[[noreturn]] void fail_cuda(cudaError_t error, std::string_view doing);

inline void check(cudaError_t error, std::string_view doing) {
  if (error != cudaSuccess) fail_cuda(error, doing);
}

}  // namespace pergola::cuda
