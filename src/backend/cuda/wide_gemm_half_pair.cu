#include "backend/cuda/wide_gemm.cuh"

namespace pergola::cuda {

void launch_wide_half_pair(const LaunchContext& context, const WideParams& params, int bits, int groups) {
  launch_wide_family<Family::half_pair>(context, params, bits, groups);
}

}  // namespace pergola::cuda
