#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"
#include "backend/cuda/packed_gemm.h"

namespace pergola::cuda {

/// Lets the kernel have so much dynamic shared memory; asks the driver only once for what is enough.
void allow_shared_bytes(const void* kernel, std::size_t bytes);

/// Lets the kernel have clusters of more than eight blocks.
void allow_large_clusters(const void* kernel);

/// Starts a kernel in the context's stream. With dependent launch it may begin while the kernel before it still runs,
/// so every kernel that is started here calls wait_for_previous_kernel() before it touches anything but weights.
/// `cluster` > 0: that many consecutive blocks form a cluster (compute capability 9.0 on).
template <typename Params>
void launch(const LaunchContext& context, void (*kernel)(Params), dim3 grid, int threads, std::size_t shared_bytes,
            const Params& params, int cluster = 0) {
  static_assert(sizeof(Params) <= 4096);
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (context.dependent_launch) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 8) allow_large_clusters(reinterpret_cast<const void*>(kernel));
  if (cluster > 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  void* arguments[] = {const_cast<Params*>(&params)};
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments), "starting a kernel");
}

}  // namespace pergola::cuda
