// Starts the GEMV kernels: clusters are an attribute of the launch.
#pragma once

#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.h"

namespace pergola::cuda {

template <Family kFamily, int kBlocks>
void launch_gemv_kernel(const LaunchContext& context, GemvLaunch& params, const GemvPlan& plan) {
  params.common.slots = plan.slots;
  if (params.common.local_blocks == 0)
    params.common.local_blocks = (params.common.blocks + plan.cluster - 1) / plan.cluster;
  launch(context, gemv<kFamily, kBlocks>, dim3(static_cast<unsigned>(params.jobs * plan.cluster)), kGemvThreads,
         static_cast<std::size_t>(plan.shared_bytes), params, plan.cluster);
}

template <Family kFamily>
void launch_gemv_family(const LaunchContext& context, GemvLaunch& params, const GemvPlan& plan) {
  if (params.common.max_rows > rows_of(gemv_operand(kFamily), 1))
    return launch_gemv_kernel<kFamily, 2>(context, params, plan);
  launch_gemv_kernel<kFamily, 1>(context, params, plan);
}

}  // namespace pergola::cuda
