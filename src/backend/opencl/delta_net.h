#pragma once

#include "backend/batch.h"
#include "backend/opencl/device.h"
#include "backend/operations.h"

namespace pergola::opencl {

/// Kernels of layers with keys of one width.
struct DeltaNetKernels {
  const Kernel* convolve = nullptr;
  const Kernel* keep_window = nullptr;
  const Kernel* recur = nullptr;
  const Kernel* norm = nullptr;

  /// Throws Error for a width that the kernels do not take.
  DeltaNetKernels(Device& device, int key_dim);
};

std::size_t delta_net_work_bytes(const DeltaNet& layer, std::int64_t max_rows);

void run_delta_net(Device& device, const DeltaNetKernels& kernels, const DeltaNet& layer, const Tensor& qkv,
                   const Tensor& z, const Tensor& b, const Tensor& a, const DeltaNetState& state, const Batch& batch,
                   const Tensor& out);

}  // namespace pergola::opencl
