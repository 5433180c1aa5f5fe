// From packed words to products: the part of a trellis weight's decoding that every CUDA kernel shares.
//
// One lane owns the 32 consecutive positions of a tile that form the column pair (g, g + 8): exactly K words. A
// position's 16-bit state ends (31 - position) * K bits before the end of the group, so every shift is a compile-time
// constant, and only the first positions reach into the group before (one word, fetched by a shuffle). Within a group,
// position bits from the lowest are: r0, r3, c3, r1, r2 (docs/exl3.md, "Tile order").
#pragma once

#include "backend/cuda/codebook_constants.h"
#include "backend/cuda/ptx.cuh"

namespace pergola::cuda {

inline constexpr std::uint32_t kByteSumMultiplier = 0x83DCD12Du;
inline constexpr std::uint32_t kByteOnes = 0x01010101u;
inline constexpr float kByteSumScale = 1774.0f / 262144.0f;  ///< binary16 0x1EEE
inline constexpr float kByteSumOffset = -3.453125f;          ///< 1024 * 0x1EEE + 0xC931

/// K words of a column pair, first in the stream first, and the last word of the group before.
template <int K>
struct ColumnPair {
  std::uint32_t word[K];
  std::uint32_t previous;

  template <int kFromEnd>
  __device__ __forceinline__ std::uint32_t from_end() const {
    if constexpr (kFromEnd < K) {
      return word[K - 1 - kFromEnd];
    } else {
      return previous;
    }
  }
};

/// 32 bits of the stream that end kOffset bits before the group's end.
template <int K, int kOffset>
__device__ __forceinline__ std::uint32_t window(const ColumnPair<K>& pair) {
  constexpr int kWord = kOffset >> 5, kShift = kOffset & 31;
  if constexpr (kShift == 0) {
    return pair.template from_end<kWord>();
  } else {
    return funnel_shift_right(pair.template from_end<kWord>(), pair.template from_end<kWord + 1>(), kShift);
  }
}

/// The state that ends kOffset bits before the group's end, zero-extended. kOnMultiplier moves the mask from the logic
/// pipe to the multiplier's.
template <int K, int kOffset, bool kOnMultiplier>
__device__ __forceinline__ std::uint32_t state(const ColumnPair<K>& pair) {
  constexpr int kWord = kOffset >> 5, kShift = kOffset & 31;
  const std::uint32_t last = pair.template from_end<kWord>();
  if constexpr (kShift == 16) return kOnMultiplier ? dot2(last, 0x0100) : permute(last, 0, 0x4432);
  if constexpr (kShift == 8) return permute(last, 0, 0x4421);
  const std::uint32_t bits = window<K, kOffset>(pair);
  return kOnMultiplier ? dot2(bits, 0x0001) : permute(bits, 0, 0x4410);
}

template <Family kFamily>
__device__ __forceinline__ std::uint32_t product(std::uint32_t state, const CodebookConstants& constants) {
  if constexpr (kFamily == Family::byte_sum) {
    return state * kByteSumMultiplier;
  } else {
    return state * constants.multiplier + constants.addend;
  }
}

/// The product of a masked state from the product of an unmasked window whose upper 16 bits are another position's
/// state: one multiply instead of a mask, because (low + high << 16) * M + A' = low * M + A + ((high * M + A) << 16)
/// with A' = A + (A << 16).
template <Family kFamily>
__device__ __forceinline__ std::uint32_t repair(std::uint32_t bits, std::uint32_t product_of_high,
                                                const CodebookConstants& constants) {
  const std::uint32_t dirty =
      kFamily == Family::byte_sum ? bits * kByteSumMultiplier : bits * constants.multiplier + constants.repair_addend;
  return product_of_high * 0xFFFF0000u + dirty;
}

/// How 16-bit masks are spread over the pipes. `multiplier` suits kernels whose logic pipe is full, `repair` needs K =
/// 2 or 4.
enum class Masks { logic, mixed, multiplier, repair };

/// The mask strategy that measured best on Hopper beside tensor-core instructions.
template <Family kFamily, int K>
inline constexpr Masks kBestMasks = kFamily == Family::byte_sum
                                        ? Masks::mixed
                                        : (K == 4 ? Masks::repair : (K == 2 ? Masks::mixed : Masks::multiplier));

/// Products of positions 8 * kBlock .. 8 * kBlock + 7. Products 0..3 are rows 2b, 2b + 1, 2b + 8, 2b + 9 of column
/// g, 4..7 the same rows of column g + 8 (b = kBlock).
template <Family kFamily, int K, int kBlock, Masks kMasks>
__device__ __forceinline__ void products8(const ColumnPair<K>& pair, const CodebookConstants& constants,
                                          std::uint32_t (&x)[8]) {
  constexpr int kEnd = (3 - kBlock) * 8 * K;  // offset of the block's last position
  constexpr bool kAll = kMasks == Masks::multiplier, kSome = kMasks != Masks::logic;
  if constexpr (K == 4) {
    const std::uint32_t last = pair.template from_end<3 - kBlock>(), before = pair.template from_end<4 - kBlock>();
    const std::uint32_t v4 = funnel_shift_right(last, before, 4), v8 = funnel_shift_right(last, before, 8),
                        v12 = funnel_shift_right(last, before, 12);
    x[3] = product<kFamily>(kAll ? dot2(last, 0x0100) : permute(last, 0, 0x4432), constants);
    x[2] = product<kFamily>(permute(v12, 0, 0x4421), constants);
    x[1] = product<kFamily>(kAll ? dot2(v8, 0x0100) : permute(v8, 0, 0x4432), constants);
    x[0] = product<kFamily>(permute(v12, 0, 0x4432), constants);
    if constexpr (kMasks == Masks::repair) {
      x[7] = repair<kFamily>(last, x[3], constants);
      x[6] = repair<kFamily>(v4, x[2], constants);
      x[5] = repair<kFamily>(v8, x[1], constants);
      x[4] = repair<kFamily>(v12, x[0], constants);
    } else {
      x[7] = product<kFamily>(kSome ? dot2(last, 1) : permute(last, 0, 0x4410), constants);
      x[6] = product<kFamily>(kSome ? dot2(v4, 1) : permute(v4, 0, 0x4410), constants);
      x[5] = product<kFamily>(kAll ? dot2(v8, 1) : permute(v8, 0, 0x4410), constants);
      x[4] = product<kFamily>(kAll ? dot2(v12, 1) : permute(v12, 0, 0x4410), constants);
    }
  } else if constexpr (K == 2) {  // each window holds two positions that are four apart
    const std::uint32_t v0 = window<K, kEnd>(pair), v2 = window<K, kEnd + 2>(pair), v4 = window<K, kEnd + 4>(pair),
                        v6 = window<K, kEnd + 6>(pair);
    x[7] = product<kFamily>(kSome ? dot2(v0, 1) : permute(v0, 0, 0x4410), constants);
    x[3] = product<kFamily>(permute(v0, 0, 0x4421), constants);
    x[6] = product<kFamily>(kSome ? dot2(v2, 1) : permute(v2, 0, 0x4410), constants);
    x[2] = product<kFamily>(permute(v2, 0, 0x4421), constants);
    x[5] = product<kFamily>(kAll ? dot2(v4, 1) : permute(v4, 0, 0x4410), constants);
    x[1] = product<kFamily>(permute(v4, 0, 0x4421), constants);
    x[4] = product<kFamily>(kAll ? dot2(v6, 1) : permute(v6, 0, 0x4410), constants);
    x[0] = product<kFamily>(permute(v6, 0, 0x4421), constants);
  } else {
    x[7] = product<kFamily>(state<K, kEnd, kSome>(pair), constants);
    x[6] = product<kFamily>(state<K, kEnd + K, kAll>(pair), constants);
    x[5] = product<kFamily>(state<K, kEnd + 2 * K, kSome>(pair), constants);
    x[4] = product<kFamily>(state<K, kEnd + 3 * K, kAll>(pair), constants);
    x[3] = product<kFamily>(state<K, kEnd + 4 * K, kSome>(pair), constants);
    x[2] = product<kFamily>(state<K, kEnd + 5 * K, kAll>(pair), constants);
    x[1] = product<kFamily>(state<K, kEnd + 6 * K, kSome>(pair), constants);
    x[0] = product<kFamily>(state<K, kEnd + 7 * K, kAll>(pair), constants);
  }
}

/// The two halves whose sum is a half_pair weight, in one register.
__device__ __forceinline__ std::uint32_t masked_halves(std::uint32_t product, const CodebookConstants& constants) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(product), "r"(0x8FFF8FFFu), "r"(constants.flip));
  return result;
}

/// Two products to two weights, exactly as the format defines them (one rounding each).
template <Family kFamily>
__device__ __forceinline__ std::uint32_t exact_pair(std::uint32_t first, std::uint32_t second,
                                                    const CodebookConstants& constants) {
  std::uint32_t result;
  if constexpr (kFamily == Family::byte_sum) {
    const std::uint32_t sums = permute(dot4(first, kByteOnes, 0x6400u), dot4(second, kByteOnes, 0x6400u), 0x5410);
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(sums), "r"(0x1EEE1EEEu), "r"(0xC931C931u));
  } else {
    const std::uint32_t low = masked_halves(permute(first, second, 0x5410), constants),
                        high = masked_halves(permute(first, second, 0x7632), constants);
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(low), "r"(high));
  }
  return result;
}

/// The 16 exact weights of each column of a pair as MMA operands: operand[4 * b + i] holds rows (2b, 2b + 1) of column
/// g, of g + 8, then rows (2b + 8, 2b + 9) of column g, of g + 8.
template <Family kFamily, int K>
__device__ __forceinline__ void exact_operands(const ColumnPair<K>& pair, const CodebookConstants& constants,
                                               std::uint32_t (&operand)[16]) {
  constexpr Masks kMasks =
      kFamily == Family::byte_sum ? Masks::logic : (K == 2 || K == 4 ? Masks::mixed : Masks::multiplier);
  const auto block = [&]<int kBlock>() {
    std::uint32_t x[8];
    products8<kFamily, K, kBlock, kMasks>(pair, constants, x);
    operand[4 * kBlock] = exact_pair<kFamily>(x[0], x[1], constants);
    operand[4 * kBlock + 1] = exact_pair<kFamily>(x[4], x[5], constants);
    operand[4 * kBlock + 2] = exact_pair<kFamily>(x[2], x[3], constants);
    operand[4 * kBlock + 3] = exact_pair<kFamily>(x[6], x[7], constants);
  };
  block.template operator()<0>();
  block.template operator()<1>();
  block.template operator()<2>();
  block.template operator()<3>();
}

}  // namespace pergola::cuda
