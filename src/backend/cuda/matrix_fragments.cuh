// Operands of 16 x 16 binary16 tiles from shared memory for mma_f16 (ldmatrix). `stride` is the step between stored
// rows in bytes, a multiple of 16; all 32 lanes take part.
#pragma once

#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

namespace fragments_detail {

__device__ __forceinline__ void load(std::uint32_t address, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_trans(std::uint32_t address, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// The lane's row of the four 8 x 8 tiles: tiles 1 and 3 are `down` 8 rows further, 2 and 3 8 columns (or the reverse).
__device__ __forceinline__ std::uint32_t place(std::uint32_t tile, int stride, bool odd_is_down) {
  const int lane = threadIdx.x & 31, row = lane & 7, odd = (lane >> 3) & 1, high = lane >> 4;
  return odd_is_down ? tile + (odd * 8 + row) * stride + high * 16 : tile + (high * 8 + row) * stride + odd * 16;
}

}  // namespace fragments_detail

/// A operand: 16 rows x 16 inputs stored row by row.
__device__ __forceinline__ void load_rows(std::uint32_t tile, int stride, std::uint32_t (&a)[4]) {
  fragments_detail::load(fragments_detail::place(tile, stride, true), a);
}

/// A operand of which the transposed tile is stored: 16 inputs x 16 rows.
__device__ __forceinline__ void load_rows_transposed(std::uint32_t tile, int stride, std::uint32_t (&a)[4]) {
  fragments_detail::load_trans(fragments_detail::place(tile, stride, false), a);
}

/// Two B operands (columns 0..7: b[0], b[1]; 8..15: b[2], b[3]) stored column by column: 16 columns x 16 inputs.
__device__ __forceinline__ void load_columns(std::uint32_t tile, int stride, std::uint32_t (&b)[4]) {
  fragments_detail::load(fragments_detail::place(tile, stride, false), b);
}

/// Two B operands stored row by row: 16 inputs x 16 columns.
__device__ __forceinline__ void load_transposed(std::uint32_t tile, int stride, std::uint32_t (&b)[4]) {
  fragments_detail::load_trans(fragments_detail::place(tile, stride, true), b);
}

/// Two values as binary16, those out of its range at its ends.
__device__ __forceinline__ std::uint32_t half_pair(float a, float b) {
  const __half2 pair = __floats2half2_rn(fminf(fmaxf(a, -65504.0f), 65504.0f), fminf(fmaxf(b, -65504.0f), 65504.0f));
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__device__ __forceinline__ __half to_half_in_range(float v) {
  return __float2half_rn(fminf(fmaxf(v, -65504.0f), 65504.0f));
}

/// Copies 16 bytes asynchronously, or clears them.
__device__ __forceinline__ void async_copy16_or_zero(std::uint32_t to, const void* from, bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copy ? 16 : 0) : "memory");
}

}  // namespace pergola::cuda
