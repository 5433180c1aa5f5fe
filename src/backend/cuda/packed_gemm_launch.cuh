// Instantiates the kernels of one K. Each K is its own translation unit, because the compiler needs minutes for all of
// them.
#pragma once

#include "backend/cuda/launch.h"
#include "backend/cuda/packed_gemm.cuh"
#include "backend/cuda/packed_gemm_table.h"

namespace pergola::cuda {

template <Family kFamily, int K, Operand kOperand, int kBlocks>
PackedGemmKernel packed_gemm_kernel() {
  using Shape = PackedGemmShape<kFamily, K, kOperand, kBlocks>;
  return {packed_gemm<kFamily, K, kOperand, kBlocks>, Shape::kThreads, Shape::kStageBytes, Shape::kSumBytes,
          Shape::kMaxStages};
}

/// The kernels that exist; PackedGemmKernel::run is null for others.
template <int K>
PackedGemmKernel packed_gemm_kernel_of(Family family, Operand operand, int blocks) {
  if (family == Family::half_pair) {
    if (operand == Operand::pairs && blocks == 1) return packed_gemm_kernel<Family::half_pair, K, Operand::pairs, 1>();
    if (operand == Operand::packed && blocks == 2)
      return packed_gemm_kernel<Family::half_pair, K, Operand::packed, 2>();
    if (operand == Operand::packed && blocks == 4)
      return packed_gemm_kernel<Family::half_pair, K, Operand::packed, 4>();
  } else {
    if (operand == Operand::bytes && blocks == 1) return packed_gemm_kernel<Family::byte_sum, K, Operand::bytes, 1>();
    if (operand == Operand::packed && blocks == 1) return packed_gemm_kernel<Family::byte_sum, K, Operand::packed, 1>();
    if (operand == Operand::packed && blocks == 2) return packed_gemm_kernel<Family::byte_sum, K, Operand::packed, 2>();
    if (operand == Operand::packed && blocks == 4) return packed_gemm_kernel<Family::byte_sum, K, Operand::packed, 4>();
  }
  return {};
}

}  // namespace pergola::cuda
