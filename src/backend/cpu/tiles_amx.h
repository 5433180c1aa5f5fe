#pragma once

// Decoded weights as the right operand of AMX tile products. Internal linkage: see trellis_avx512.h.
//
// A piece (32 columns x 16 inputs) goes to two columns of tiles, one for either column half: the 16 lanes of a register
// are 16 columns of a tile, a register is one of the tile's 16 lines, and what a step multiplies fills one tile.
// Registers are stored as they come: no byte is ever moved.

#include "backend/cpu/tile_forms_avx512.h"
#include "backend/cpu/trellis_avx512.h"

namespace pergola {
namespace {

/// Tile instructions read memory that the compiler does not see them read.
PERGOLA_INLINE void finish_stores() {
  asm volatile("" ::: "memory");
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t line_bytes[16] = {};
  std::uint8_t lines[16] = {};
};

/// Tiles 0..7 of 64 byte lines; tile i has `lines[i]` of them. One configuration costs some tens of nanoseconds: done
/// per call, a thread keeps no state.
PERGOLA_INLINE void configure_tiles(const int (&lines)[8]) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.line_bytes[i] = kLineBytes;
    config.lines[i] = static_cast<std::uint8_t>(lines[i]);
  }
  _tile_loadconfig(&config);
}

// --- what a weight becomes
// -----------------------------------------------------------------------------------------------------------------

/// Halves: `binary16(low) + binary16(high)` with another exponent, see summands().
template <std::uint32_t kFlip>
PERGOLA_INLINE __m512h half_values(const Product& x) {
  return _mm512_add_ph(_mm512_castsi512_ph(summands(x.low, kFlip)), _mm512_castsi512_ph(summands(x.high, kFlip)));
}

/// MUL1: the four bytes of the product, whose sum is the weight. Exact, and nothing is computed but the product.
struct ProductBytes {
  static constexpr Codebook kCodebook = Codebook::mul1;
  static constexpr int kBands = 1;  ///< bands of 16 inputs in a tile
  static constexpr int kRing = 3;   ///< tiles of few rows that are decoded ahead, and the one in use
  struct Held {};

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int, std::byte* tile, Held&) {
    _mm512_store_si512(tile + kPair * kLineBytes, x.low);
    _mm512_store_si512(tile + (8 + kPair) * kLineBytes, x.high);
  }
};

/// 3INST and MCG: the value in units of 2^-12 plus 2^15 as two unsigned bytes.
template <Codebook codebook>
struct SplitWords {
  static constexpr Codebook kCodebook = codebook;
  static constexpr int kBands = 2;
  static constexpr int kRing = 2;
  struct Held {};

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int band, std::byte* tile, Held&) {
    constexpr std::uint32_t kTimes4096 = 0x3B60 ^ 0x5000;
    const __m512i value = _mm512_cvtph_epi16(half_values<kTimes4096>(x));
    _mm512_store_si512(tile + (8 * band + kPair) * kLineBytes, _mm512_xor_si512(value, words(0x8000)));
  }
};

/// bfloat16 of the value times kScale, rounded half away from zero. The scale keeps binary16 exponents below 15, so
/// that the other exponent bias is a bit pattern: exponent e of binary16 becomes 0x70 | e.
template <Codebook codebook>
struct BrainFloats {
  static constexpr Codebook kCodebook = codebook;
  static constexpr int kBands = 2;
  static constexpr float kScale = codebook == Codebook::mul1 ? 0.25f : 0.0625f;
  struct Held {};

  static PERGOLA_INLINE __m512i value(const Product& x) {
    if constexpr (codebook == Codebook::mul1) {
      // (1024 + s) * c + d as the format defines it, c and d divided by 4.
      const __m512i biased = _mm512_or_si512(byte_sums(x), words(0x6400));
      return _mm512_castph_si512(_mm512_fmadd_ph(_mm512_castsi512_ph(biased),
                                                 _mm512_castsi512_ph(words(0x1EEE - 0x0800)),
                                                 _mm512_castsi512_ph(words(0xC931 - 0x0800))));
    } else {
      return _mm512_castph_si512(half_values<0x3B60 ^ 0x1000>(x));
    }
  }

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int band, std::byte* tile, Held&) {
    const __m512i shifted = _mm512_mulhrs_epi16(value(x), words(0x1000));  // (h + 4) >> 3
    const __m512i bits = _mm512_ternarylogic_epi32(shifted, words(0x8FFF), words(0x3800), 0x6A);
    _mm512_store_si512(tile + (8 * band + kPair) * kLineBytes, bits);
  }
};

/// One unsigned byte a weight. MUL1: byte sum / 4, cut. Halves: value * 32 + 128, rounded.
template <Codebook codebook>
struct ShortBytes {
  static constexpr Codebook kCodebook = codebook;
  static constexpr int kBands = 4;
  struct Held {
    __m512i even;
  };

  template <int kPair>
  static PERGOLA_INLINE __m512i word(const Product& x) {
    constexpr bool kOdd = (kPair & 1) != 0;
    if constexpr (codebook == Codebook::mul1) {
      // Odd pairs carry their byte in the upper half of the word: the sum times 64 puts sum / 4 there.
      const __m512i weight = _mm512_set1_epi8(kOdd ? 64 : 1);
      const __m512i sum = _mm512_add_epi16(_mm512_maddubs_epi16(x.low, weight), _mm512_maddubs_epi16(x.high, weight));
      return kOdd ? sum : _mm512_srli_epi16(sum, 2);
    } else {
      // Adding 52 leaves a half whose last bit is 1/32: the low byte is 128 + 32 * value.
      const __m512i sum =
          _mm512_castph_si512(_mm512_add_ph(half_values<0x3B60>(x), _mm512_castsi512_ph(words(0x5280))));
      return kOdd ? _mm512_slli_epi16(sum, 8) : sum;
    }
  }

  template <int kPair>
  static PERGOLA_INLINE void store(const Product& x, int band, std::byte* tile, Held& held) {
    const __m512i value = word<kPair>(x);
    if constexpr ((kPair & 1) == 0) {
      held.even = value;
    } else {
      const __m512i both = _mm512_ternarylogic_epi32(value, held.even, _mm512_set1_epi16(0x00FF), 0xD8);
      _mm512_store_si512(tile + (4 * band + kPair / 2) * kLineBytes, both);
    }
  }
};

/// Decodes a piece into line group `band` of the tiles of its two column halves.
template <typename Weights, int K>
PERGOLA_INLINE void decode_piece(const std::byte* piece, int band, std::byte* tile0, std::byte* tile1) {
  const Planes<K> planes = load_planes<K>(piece);
  typename Weights::Held held0, held1;
  for_pairs([&](auto pair) __attribute__((always_inline)) {
    using P = decltype(pair);
    Weights::template store<P::kIndex>(multiply_states<Weights::kCodebook>(states<K, P::kStep0>(planes)), band, tile0,
                                       held0);
    Weights::template store<P::kIndex>(multiply_states<Weights::kCodebook>(states<K, P::kStep1>(planes)), band, tile1,
                                       held1);
  });
}

}  // namespace
}  // namespace pergola
