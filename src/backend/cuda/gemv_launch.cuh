// Starts the GEMV kernels: clusters are an attribute of the launch.
#pragma once

#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.h"

namespace pergola::cuda {

template <Family kFamily, int kBlocks, typename Job, typename Params>
void launch_gemv_kernel(const LaunchContext& context, Params& params, const GemvPlan& plan) {
  params.common.slots = plan.slots;
  if (params.common.local_blocks == 0)
    params.common.local_blocks = (params.common.blocks + plan.cluster - 1) / plan.cluster;
  launch(context, gemv<kFamily, kBlocks, Job, Params>, dim3(static_cast<unsigned>(params.jobs * plan.cluster)),
         kGemvThreads, static_cast<std::size_t>(plan.shared_bytes), params, plan.cluster);
}

}  // namespace pergola::cuda
