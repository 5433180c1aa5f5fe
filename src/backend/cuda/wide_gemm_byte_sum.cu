#include "backend/cuda/wide_gemm.cuh"

namespace pergola::cuda {

void launch_wide_byte_sum(const LaunchContext& context, const WideParams& params, int bits, int groups) {
  launch_wide_family<Family::byte_sum>(context, params, bits, groups);
}

}  // namespace pergola::cuda
