#include "backend/cuda/check.h"

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

}  // namespace pergola::cuda
