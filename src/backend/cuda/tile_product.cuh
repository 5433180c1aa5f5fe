// A warp's share of a unit of packed words: one tile of 16 outputs and 64 inputs, times very few rows. Small code in a
// loop on purpose: launches are so short that instructions are fetched for the first time all the while.
#pragma once

#include <type_traits>

#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/trellis_decode.cuh"

namespace pergola::cuda {

/// Sums of a tile: integers for product bytes, fp32 otherwise.
template <Operand kOperand>
using RowSum = std::conditional_t<kOperand == Operand::bytes, int, float>;

__device__ __forceinline__ std::uint32_t load_shared1(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

__device__ __forceinline__ uint2 load_shared2(std::uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}

/// The K words of the lane's column pair of tile `tile` (0..3 of half a unit); `half` is the lane's address in the half
/// unit (packed_layout.h).
template <int K>
__device__ __forceinline__ void load_tile_words(std::uint32_t half, int tile, std::uint32_t (&word)[K]) {
  const auto address = [&](int i) {
    const int number = tile * K + i;
    return half + (number >> 2) * 512 + (number & 3) * 4;
  };
  if constexpr (K % 4 == 0) {
#pragma unroll
    for (int i = 0; i < K; i += 4) {
      const uint4 four = load_shared(address(i));
      word[i] = four.x;
      word[i + 1] = four.y;
      word[i + 2] = four.z;
      word[i + 3] = four.w;
    }
  } else if constexpr (K % 2 == 0) {
#pragma unroll
    for (int i = 0; i < K; i += 2) {
      const uint2 two = load_shared2(address(i));
      word[i] = two.x;
      word[i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < K; ++i) word[i] = load_shared1(address(i));
  }
}

/// Activations of 64 inputs and eight columns as MMA operands; `fragments` is the lane's own address.
template <Operand kOperand>
__device__ __forceinline__ void load_fragments(std::uint32_t fragments, std::uint32_t (&b)[16]) {
  if constexpr (kOperand == Operand::bytes) {
    const uint4 v = load_shared(fragments);
    const std::uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      b[4 * p] = permute(four[p], 0, 0x0000);
      b[4 * p + 1] = permute(four[p], 0, 0x1111);
      b[4 * p + 2] = permute(four[p], 0, 0x2222);
      b[4 * p + 3] = permute(four[p], 0, 0x3333);
    }
  } else {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const uint4 v = load_shared(fragments + c * 512);
      const std::uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        b[8 * c + 4 * p] = permute(four[2 * p], 0, 0x1010);
        b[8 * c + 4 * p + 1] = permute(four[2 * p + 1], 0, 0x1010);
        b[8 * c + 4 * p + 2] = permute(four[2 * p], 0, 0x3232);
        b[8 * c + 4 * p + 3] = permute(four[2 * p + 1], 0, 0x3232);
      }
    }
  }
}

/// sum[n8] += the tile's 16 columns x activations of one unit.
template <Family kFamily, Operand kOperand, int K, int kBlocks>
__device__ __forceinline__ void multiply_tile(const ColumnPair<K>& pair, const CodebookConstants& constants,
                                              const std::uint32_t (&b)[kBlocks][16],
                                              RowSum<kOperand> (&sum)[kBlocks][4]) {
  const auto eight = [&]<int kBlock>() {
    std::uint32_t x[8];
    products8<kFamily, K, kBlock, kBestMasks<kFamily, K>>(pair, constants, x);
    if constexpr (kOperand == Operand::pairs) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[i] = masked_halves(x[i], constants);  // indexed on purpose: a range-for leaves x in local memory
    }
#pragma unroll
    for (int n8 = 0; n8 < kBlocks; ++n8) {
      if constexpr (kOperand == Operand::bytes) {
        mma_u8s8(sum[n8], x[0], x[4], x[2], x[6], b[n8][4 * kBlock], b[n8][4 * kBlock + 1]);
        mma_u8s8(sum[n8], x[1], x[5], x[3], x[7], b[n8][4 * kBlock + 2], b[n8][4 * kBlock + 3]);
      } else {
        mma_f16(sum[n8], x[0], x[4], x[2], x[6], b[n8][4 * kBlock], b[n8][4 * kBlock + 1]);
        mma_f16(sum[n8], x[1], x[5], x[3], x[7], b[n8][4 * kBlock + 2], b[n8][4 * kBlock + 3]);
      }
    }
  };
  eight.template operator()<0>();
  eight.template operator()<1>();
  eight.template operator()<2>();
  eight.template operator()<3>();
}

}  // namespace pergola::cuda
