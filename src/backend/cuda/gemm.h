#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace pergola::cuda {

/// Ordinary matrix products through cuBLASLt, which is loaded when the first device is opened: the program starts
/// without it.
class Gemm {
 public:
  /// Throws Error when the library is not there.
  Gemm();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// out [m, n] fp32 = x [m, k] w [n, k]^T, both binary16, all packed; fp32 sums.
  void multiply(cudaStream_t stream, const __half* x, const __half* w, float* out, std::int64_t m, std::int64_t n,
                std::int64_t k);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace pergola::cuda
