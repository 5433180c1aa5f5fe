#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"
#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

/// Starts a kernel in the context's stream. With dependent launch it may begin while the kernel before it still runs,
/// so every kernel that is started here calls wait_for_previous_kernel() before it touches anything but weights.
template <typename Params>
void launch(const LaunchContext& context, void (*kernel)(Params), dim3 grid, int threads, std::size_t shared_bytes,
            const Params& params) {
  static_assert(sizeof(Params) <= 4096);
  if (shared_bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "reserving shared memory");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = context.dependent_launch ? 1 : 0;
  void* arguments[] = {const_cast<Params*>(&params)};
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments), "starting a kernel");
}

}  // namespace pergola::cuda
