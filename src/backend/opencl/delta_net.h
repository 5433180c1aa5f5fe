#pragma once

#include "backend/batch.h"
#include "backend/opencl/device.h"
#include "backend/operations.h"

namespace pergola::opencl {

/// Throws Error for shapes that the kernels do not take; else compiles them.
void prepare_delta_net(Device& device, const DeltaNet& layer);

std::size_t delta_net_work_bytes(const DeltaNet& layer, std::int64_t max_rows);

void run_delta_net(Device& device, const DeltaNet& layer, const Tensor& qkv, const Tensor& z, const Tensor& b,
                   const Tensor& a, const DeltaNetState& state, const Batch& batch, const Tensor& out);

}  // namespace pergola::opencl
