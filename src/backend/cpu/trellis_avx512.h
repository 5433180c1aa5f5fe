#pragma once

// Decoding of repacked trellis pieces (packed_matrix.h) with AVX-512, shared by the files that are compiled for it.
// Everything has internal linkage on purpose: a function with external linkage could be taken by the linker for a file
// that must run without AVX-512.
//
// The 16-bit state s of a weight is multiplied by a 32-bit constant C. Two 512-bit vector operations a cycle is the
// limit of all these kernels, and a 32-bit multiply costs two of them for 16 weights. So states stay packed, 32 to a
// register, and the product is formed from 16-bit multiplies: low = s * CL, high = hi16(s * CL) + s * CH (+ addend),
// three multiplies and an add for 32 weights.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cpu/packed_matrix.h"
#include "trellis/codebook.h"

#ifndef PERGOLA_INLINE
#define PERGOLA_INLINE inline __attribute__((always_inline))
#endif

namespace pergola {
namespace {

constexpr std::uint32_t multiplier_of(Codebook codebook) {
  return codebook == Codebook::mul1  ? kMul1Multiplier
         : codebook == Codebook::mcg ? kMcgMultiplier
                                     : kThreeInstMultiplier;
}

PERGOLA_INLINE __m512i words(std::uint32_t value) {
  return _mm512_set1_epi16(static_cast<short>(value));
}

// --- steps
// ---------------------------------------------------------------------------------------------------------------------------------

/// A row pair of a piece as a type, so that shifts, rows and accumulators are constants: its two steps, one for either
/// column half.
template <int J>
struct Pair {
  static constexpr int kIndex = J;
  static constexpr int kStep0 = (J & 3) + 8 * (J >> 2);
  static constexpr int kStep1 = kStep0 + 4;
  static_assert(step_pair(kStep0) == J && step_half(kStep0) == 0 && step_pair(kStep1) == J && step_half(kStep1) == 1);
};

template <typename Use, int... J>
PERGOLA_INLINE void for_pairs(Use use, std::integer_sequence<int, J...>) {
  (use(Pair<J>{}), ...);
}

/// use(Pair<J>) for J = 0..7.
template <typename Use>
PERGOLA_INLINE void for_pairs(Use use) {
  for_pairs(use, std::make_integer_sequence<int, kSteps / 2>{});
}

// --- states
// --------------------------------------------------------------------------------------------------------------------------------

/// The K planes of a piece, with the "previous" plane before them.
template <int K>
struct Planes {
  __m512i at[K + 1];
};

/// Word indices that make the previous plane of plane K-1: each tile's lanes are a ring of eight.
struct PreviousIndex {
  alignas(64) std::uint16_t word[32];
  constexpr PreviousIndex() : word() {
    for (int lane = 0; lane < kLanes; ++lane) {
      word[2 * lane] = static_cast<std::uint16_t>(2 * (((lane - 1) & 7) | (lane & 8)) + 1);
      word[2 * lane + 1] = static_cast<std::uint16_t>(2 * lane);
    }
  }
};
constexpr PreviousIndex kPreviousIndex;

template <int K>
PERGOLA_INLINE Planes<K> load_planes(const std::byte* piece) {
  Planes<K> planes;
  for (int i = 0; i < K; ++i) planes.at[i + 1] = _mm512_load_si512(piece + 64 * i);
  planes.at[0] = _mm512_permutexvar_epi16(_mm512_load_si512(kPreviousIndex.word), planes.at[K]);
  return planes;
}

/// The 32 states of a step: lanes x (row, row + 4).
template <int K, int T>
PERGOLA_INLINE __m512i states(const Planes<K>& planes) {
  constexpr int index = window_index(K, T), shift = window_shift(K, T);
  if constexpr (shift == 0) return planes.at[index + 1];
  return _mm512_shrdi_epi16(planes.at[index + 1], planes.at[index], shift);
}

// --- codebooks
// -----------------------------------------------------------------------------------------------------------------------------

/// The 16-bit halves of the 32-bit products of 32 states.
struct Product {
  __m512i low;
  __m512i high;
};

template <Codebook codebook>
PERGOLA_INLINE Product multiply_states(__m512i s) {
  constexpr std::uint32_t multiplier = multiplier_of(codebook);
  const __m512i low_factor = words(multiplier & 0xFFFF), high_factor = words(multiplier >> 16);
  Product x;
  x.low = _mm512_mullo_epi16(s, low_factor);
  x.high = _mm512_add_epi16(_mm512_mulhi_epu16(s, low_factor), _mm512_mullo_epi16(s, high_factor));
  if constexpr (codebook == Codebook::three_inst) {
    const __m512i low_addend = words(kThreeInstAddend & 0xFFFF);
    x.low = _mm512_add_epi16(x.low, low_addend);
    x.high = _mm512_add_epi16(x.high, words(kThreeInstAddend >> 16));
    const __mmask32 carry = _mm512_cmplt_epu16_mask(x.low, low_addend);
    x.high = _mm512_mask_add_epi16(x.high, carry, x.high, words(1));
  }
  return x;
}

/// (x & 0x8FFF) ^ flip for every word: the two summands of a 3INST or MCG value as halves, for flip = 0x3B60. Another
/// exponent in `flip` scales them.
PERGOLA_INLINE __m512i summands(__m512i x, std::uint32_t flip) {
  return _mm512_ternarylogic_epi32(x, _mm512_set1_epi32(static_cast<int>(0x8FFF8FFFu)), words(flip), 0x6A);
}

/// The byte sum 0..1020 of each product.
PERGOLA_INLINE __m512i byte_sums(const Product& x) {
  const __m512i ones = _mm512_set1_epi8(1);
  return _mm512_add_epi16(_mm512_maddubs_epi16(x.low, ones), _mm512_maddubs_epi16(x.high, ones));
}

/// A MUL1 weight is kMul1Unit * byte sum + kMul1Zero, up to its final rounding to binary16 (2^-10 at most, 2e-4 of the
/// weights' RMS), which integer kernels leave out.
constexpr float kMul1Unit = 1774.0f / 262144.0f;
constexpr float kMul1Zero = -3.453125f;
/// Byte sums are centred by this integer inside integer sums, so that sums stay small.
constexpr int kMul1Centre = 510;

/// The weights of 32 states as int16: weight = kUnit * (word - kCentre) + kOffset. kLargest bounds |word - kCentre|.
/// byte_on_top makes a byte of a word in the upper half of the word: weight = kByteUnit * (byte - 128) + kByteOffset.
struct ByteSumWeights {
  static constexpr Codebook kCodebook = Codebook::mul1;
  static constexpr int kCentre = kMul1Centre;
  static constexpr int kLargest = 510;
  static constexpr float kUnit = kMul1Unit;
  static constexpr float kOffset = kMul1Unit * kMul1Centre + kMul1Zero;

  // A byte is a quarter of the byte sum, cut: 1.5 is lost on average.
  static constexpr float kByteUnit = 4.0f * kMul1Unit;
  static constexpr float kByteOffset = kMul1Unit * (4 * 128 + 1.5f) + kMul1Zero;

  static PERGOLA_INLINE __m512i from(const Product& x) { return byte_sums(x); }
  static PERGOLA_INLINE __m512i byte_on_top(__m512i word) { return _mm512_slli_epi16(word, 6); }
};

/// 3INST and MCG in units of 2^-13 without binary16 arithmetic: the exact sum of the two summands, before its rounding.
///
/// A summand is sign * (1024 + m) << e, e = 0..3, m 10 bits. Of its high byte (sign, 2 bits of e, 2 bits of m; the mask
/// and the flip are in the tables) two table look-ups make sign << e, the factor of the low 8 bits of m, and sign * ((4
/// + top bits of m) << e), the factor of 256.
template <Codebook codebook>
struct TableWeights {
  static constexpr Codebook kCodebook = codebook;
  static constexpr int kCentre = 0;
  static constexpr int kLargest = 32752;
  static constexpr float kUnit = 1.0f / 8192.0f;
  static constexpr float kOffset = 0.0f;
  static constexpr float kByteUnit = 1.0f / 32.0f;
  static constexpr float kByteOffset = 0.0f;

  static PERGOLA_INLINE __m512i byte_on_top(__m512i word) { return _mm512_add_epi16(word, words(0x8080)); }

  /// Entry i: bits 0..1 top bits of m, 2..3 e, 4 sign, as they stand in the product; 5 is not used.
  struct Tables {
    alignas(64) std::int8_t factor[64];
    alignas(64) std::int8_t base[64];
    constexpr Tables() : factor(), base() {
      for (int i = 0; i < 64; ++i) {
        const int flipped = (i & 15) ^ 0xB;  // the flip 0x3B60 on bits 8..11
        const int e = flipped >> 2, top = flipped & 3, sign = (i & 16) != 0 ? -1 : 1;
        factor[i] = static_cast<std::int8_t>(sign * (1 << e));
        base[i] = static_cast<std::int8_t>(sign * 2 * ((4 + top) << e));
      }
    }
  };
  static constexpr Tables kTables{};

  static PERGOLA_INLINE __m512i from(const Product& x) {
    // Bytes of (low, high) side by side in each word: first their high bytes, then their low bytes.
    const __m512i low_byte = _mm512_set1_epi16(0x00FF);
    const __m512i crossed = _mm512_shrdi_epi16(x.low, x.high, 8);  // low's high byte, high's low byte
    const __m512i tops =
        _mm512_ternarylogic_epi32(x.high, crossed, low_byte, 0xD8);  // crossed below, high's high byte above
    const __m512i rests =
        _mm512_xor_si512(_mm512_ternarylogic_epi32(crossed, x.low, low_byte, 0xD8), _mm512_set1_epi8(0x60));
    // Bits 0..3 stay, bit 7 goes to 4, the rest is cleared: a bit matrix, row of result bit 0 in the top byte.
    const __m512i index = _mm512_gf2p8affine_epi64_epi8(tops, _mm512_set1_epi64(0x0102040880000000), 0);
    const __m512i factor = _mm512_permutexvar_epi8(index, _mm512_load_si512(kTables.factor));
    const __m512i base = _mm512_permutexvar_epi8(index, _mm512_load_si512(kTables.base));
    return _mm512_add_epi16(_mm512_maddubs_epi16(rests, factor),
                            _mm512_maddubs_epi16(_mm512_set1_epi8(static_cast<char>(128)), base));
  }
};

// --- memory
// --------------------------------------------------------------------------------------------------------------------------------

/// Where a kernel prefetches to while it reads the two streams of a block: far to L2, near to L1. One core gets 13 of
/// 15 GB/s so; 5 without (docs/performance.md). Beyond a stream's end lies the same stream of the next block, one
/// stream further.
struct Ahead {
  std::int64_t far;
  std::int64_t near;

  PERGOLA_INLINE Ahead(std::int64_t position, std::int64_t stream_bytes) {
    constexpr std::int64_t kFar = 2048, kNear = 512;
    far = kFar + (position + kFar < stream_bytes ? 0 : stream_bytes);
    near = kNear + (position + kNear < stream_bytes ? 0 : stream_bytes);
  }
};

template <int K>
PERGOLA_INLINE void prefetch_piece(const std::byte* piece, const Ahead& ahead) {
  for (int i = 0; i < K; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + ahead.far), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(piece + 64 * i + ahead.near), _MM_HINT_T0);
  }
}

/// Bytes of the eight bands of one strip in one chunk, and of one stream.
template <int K>
constexpr std::int64_t kRunBytes = kBandsPerChunk* piece_bytes(K);
template <int K>
PERGOLA_INLINE std::int64_t stream_bytes_of(std::int64_t in_features) {
  return in_features / kChunkRows * 2 * kRunBytes<K>;
}

/// Stores a strip's lane sums of the two column halves as 32 columns in natural order.
PERGOLA_INLINE void store_strip(float* z, __m512 half0, __m512 half1) {
  _mm512_storeu_ps(z, _mm512_shuffle_f32x4(half0, half1, 0x44));
  _mm512_storeu_ps(z + 16, _mm512_shuffle_f32x4(half0, half1, 0xEE));
}

}  // namespace
}  // namespace pergola
