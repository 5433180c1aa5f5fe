#include "backend/cuda/gemv_launch.cuh"

namespace pergola::cuda {

void launch_gemv_half_pair(const LaunchContext& context, GemvLaunch& launch, const GemvPlan& plan) {
  launch_gemv_family<Family::half_pair>(context, launch, plan);
}

}  // namespace pergola::cuda
