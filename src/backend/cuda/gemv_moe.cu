#include "backend/cuda/gemv_launch.cuh"

namespace pergola::cuda {

void launch_gemv(const LaunchContext& context, GemvGateUp gate_up, Family family, const GemvPlan& plan) {
  using Job = gemv_detail::GateUpJob;
  gate_up.common.max_rows = gate_up.shared_chunk > 0 ? gate_up.shared_chunk : 1;
  gate_up.common.x_f32 = gate_up.moe.x.f32;
  if (family == Family::byte_sum) return launch_gemv_kernel<Family::byte_sum, 1, Job>(context, gate_up, plan);
  launch_gemv_kernel<Family::half_pair, 1, Job>(context, gate_up, plan);
}

void launch_gemv(const LaunchContext& context, GemvDown down, Family family, const GemvPlan& plan) {
  using Job = gemv_detail::DownJob;
  down.common.max_rows = 1;
  down.common.x_f32 = 1;
  if (family == Family::byte_sum) return launch_gemv_kernel<Family::byte_sum, 1, Job>(context, down, plan);
  launch_gemv_kernel<Family::half_pair, 1, Job>(context, down, plan);
}

void launch_gemv(const LaunchContext& context, GemvDownParts down, Family family, const GemvPlan& plan) {
  using Job = gemv_detail::DownPartsJob;
  down.common.max_rows = down.shared_chunk;
  down.common.x_f32 = 1;
  if (family == Family::byte_sum) return launch_gemv_kernel<Family::byte_sum, 1, Job>(context, down, plan);
  launch_gemv_kernel<Family::half_pair, 1, Job>(context, down, plan);
}

}  // namespace pergola::cuda
