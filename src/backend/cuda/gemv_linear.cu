#include "backend/cuda/gemv_launch.cuh"

namespace pergola::cuda {

void launch_gemv(const LaunchContext& context, GemvLinears linears, Family family, const GemvPlan& plan) {
  using Job = gemv_detail::LinearJob;
  linears.common.max_rows = linears.x.rows;
  linears.common.x_f32 = linears.x.f32;
  const bool wide = linears.x.rows > rows_of(gemv_operand(family), 1);
  if (family == Family::byte_sum) {
    if (wide) return launch_gemv_kernel<Family::byte_sum, 2, Job>(context, linears, plan);
    return launch_gemv_kernel<Family::byte_sum, 1, Job>(context, linears, plan);
  }
  if (wide) return launch_gemv_kernel<Family::half_pair, 2, Job>(context, linears, plan);
  launch_gemv_kernel<Family::half_pair, 1, Job>(context, linears, plan);
}

}  // namespace pergola::cuda
