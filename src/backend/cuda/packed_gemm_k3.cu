#include "backend/cuda/packed_gemm_launch.cuh"

namespace pergola::cuda {
template PackedGemmKernel packed_gemm_kernel_of<3>(Family, Operand, int);
}
