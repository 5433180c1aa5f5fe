#include "backend/cuda/gemv_launch.cuh"

namespace pergola::cuda {

void launch_gemv_byte_sum(const LaunchContext& context, GemvLaunch& launch, const GemvPlan& plan) {
  launch_gemv_family<Family::byte_sum>(context, launch, plan);
}

}  // namespace pergola::cuda
