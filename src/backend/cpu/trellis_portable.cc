// Trellis kernels for any processor: states are decoded in vectors of the compiler's own kind, 16 bytes wide, which are
// SSE2 on x86-64 and NEON on AArch64. Decoding by arithmetic is twice as fast as the 256 KB table that plain scalar
// code would look states up in.

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/portable_kernels.h"
#include "trellis/hadamard.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace pergola::portable {
namespace {

using U16 = std::uint16_t __attribute__((vector_size(16)));
using I32 = std::int32_t __attribute__((vector_size(16)));
using U32 = std::uint32_t __attribute__((vector_size(16)));
using F32 = float __attribute__((vector_size(16)));

constexpr int kWidth = 4;  // lanes of a strip in one vector
constexpr int kVectors = kLanes / kWidth;

U16 load(const std::byte* at) {
  U16 v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

F32 load_floats(const float* at) {
  F32 v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

void store(float* at, F32 v) {
  std::memcpy(at, &v, sizeof v);
}

/// Upper halves of the 32-bit products with a 16-bit factor.
U16 multiply_high(U16 a, std::uint16_t b) {
#if defined(__SSE2__)
  return reinterpret_cast<U16>(_mm_mulhi_epu16(reinterpret_cast<__m128i>(a), _mm_set1_epi16(static_cast<short>(b))));
#else
  U16 high;
  for (int i = 0; i < 8; ++i) high[i] = static_cast<std::uint16_t>((std::uint32_t{a[i]} * b) >> 16);
  return high;
#endif
}

// --- activations ---

/// fp32 in natural order, then the sum of all values: per row in_features + 16 floats.
constexpr std::int64_t row_floats(std::int64_t in_features) {
  return in_features + 16;
}

std::int64_t float_bytes(std::int64_t in_features, std::int64_t rows) {
  return rows * row_floats(in_features) * static_cast<std::int64_t>(sizeof(float));
}

void prepare_floats(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                    std::int64_t, std::byte* form) {
  auto* out = reinterpret_cast<float*>(form) + row * row_floats(in_features);
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] * to_float(suh[i]);
  for (std::int64_t i = count; i < in_features; ++i) out[i] = 0.0f;
  hadamard_blocks(std::span(out, static_cast<std::size_t>(in_features)));
  double sum = 0;
  for (std::int64_t i = 0; i < in_features; ++i) sum += out[i];
  out[in_features] = static_cast<float>(sum);
}

constexpr ActivationForm kFloatForm{"fp32", float_bytes, prepare_floats};

// --- codebooks ---

void multiply_states(U16 states, std::uint32_t multiplier, U16& low, U16& high) {
  const auto factor = static_cast<std::uint16_t>(multiplier);
  low = states * factor;
  high = multiply_high(states, factor) + states * static_cast<std::uint16_t>(multiplier >> 16);
}

/// Values are left in units that the sums are multiplied by at the end: value = unit * number + offset.
template <Codebook codebook>
constexpr float kUnit = codebook == Codebook::mul1 ? kMul1Factor : 0x1p112f;
template <Codebook codebook>
constexpr float kOffset = codebook == Codebook::mul1 ? kMul1Offset : 0.0f;

/// Inputs are multiplied by this and sums divided by it, so that products with numbers 2^112 too small do not become
/// subnormal.
template <Codebook codebook>
constexpr float kLift = codebook == Codebook::mul1 ? 1.0f : 0x1p96f;

/// A binary16 in the upper half of each dword, shifted under its sign: a float 2^112 too small.
F32 shifted_half(I32 dwords) {
  return reinterpret_cast<F32>((dwords >> 3) & static_cast<std::int32_t>(0x8FFFE000u));
}

/// Numbers of eight states: `first` of the low halfwords, `second` of the high ones.
template <Codebook codebook>
void numbers(U16 states, F32& first, F32& second) {
  if constexpr (codebook == Codebook::mul1) {
    U16 low, high;
    multiply_states(states, kMul1Multiplier, low, high);
    const auto sums = reinterpret_cast<U32>((low & 0xFF) + (low >> 8) + (high & 0xFF) + (high >> 8));
    first = __builtin_convertvector(reinterpret_cast<I32>(sums & 0xFFFFu), F32);
    second = __builtin_convertvector(reinterpret_cast<I32>(sums >> 16), F32);
  } else {
    U16 low, high;
    if constexpr (codebook == Codebook::mcg) {
      multiply_states(states, kMcgMultiplier, low, high);
    } else {
      multiply_states(states, kThreeInstMultiplier, low, high);
      constexpr auto kAddLow = static_cast<std::uint16_t>(kThreeInstAddend);
      low += kAddLow;
      const auto carry = reinterpret_cast<U16>(low < kAddLow);  // all ones where the addition wrapped
      high += static_cast<std::uint16_t>(kThreeInstAddend >> 16) - carry;
    }
    const auto l = reinterpret_cast<I32>((low & 0x8FFF) ^ 0x3B60);
    const auto h = reinterpret_cast<I32>((high & 0x8FFF) ^ 0x3B60);
    first = shifted_half(l << 16) + shifted_half(h << 16);
    second = shifted_half(l) + shifted_half(h);
  }
}

// --- pieces ---

template <typename Use, int... T>
inline void for_steps(Use&& use, std::integer_sequence<int, T...>) {
  (use(std::integral_constant<int, T>{}), ...);
}

/// Calls use(step, states) for the sixteen steps of vector `vector` (lanes 4 * vector ...) of a piece.
template <int K, typename Use>
inline void for_states(const std::byte* piece, int vector, Use&& use) {
  U16 w[K + 1];
  for (int i = 0; i < K; ++i) w[i + 1] = load(piece + 64 * i + 16 * vector);
  // The plane before the first: see packed_matrix.h.
  U32 left;
  for (int lane = 0; lane < kWidth; ++lane) {
    const int own = kWidth * vector + lane;
    const int before = ((own - 1) & 7) | (own & 8);
    std::uint32_t dword;
    std::memcpy(&dword, piece + 64 * (K - 1) + 4 * before, sizeof dword);
    left[lane] = dword;
  }
  w[0] = reinterpret_cast<U16>((left >> 16) | (reinterpret_cast<U32>(w[K]) << 16));
  for_steps(
      [&](auto step) {
        constexpr int i = window_index(K, decltype(step)::value);
        constexpr int shift = window_shift(K, decltype(step)::value);
        if constexpr (shift == 0) {
          use(step, w[i + 1]);
        } else {
          use(step, static_cast<U16>((w[i + 1] >> shift) | (w[i] << (16 - shift))));
        }
      },
      std::make_integer_sequence<int, kSteps>{});
}

/// First column in the strip of a vector's lanes.
constexpr int first_column(int vector, int half) {
  return lane_column(kWidth * vector, half);
}

template <Codebook codebook, int K>
void multiply_piece(const std::byte* piece, const float* x, float* z) {
  for (int vector = 0; vector < kVectors; ++vector) {
    F32 sums[2] = {load_floats(z + first_column(vector, 0)), load_floats(z + first_column(vector, 1))};
    for_states<K>(piece, vector, [&](auto step, U16 states) {
      constexpr int t = decltype(step)::value;
      F32 first, second;
      numbers<codebook>(states, first, second);
      sums[step_half(t)] += first * x[step_row(t)] + second * x[step_row(t) + 4];
    });
    store(z + first_column(vector, 0), sums[0]);
    store(z + first_column(vector, 1), sums[1]);
  }
}

/// z = unit * z + offset * sum of the row's inputs, with the lift taken back.
template <Codebook codebook>
void scale_sums(float* z, float input_sum) {
  const float factor = kUnit<codebook> / kLift<codebook>;
  for (int j = 0; j < kBlockColumns; ++j) z[j] = z[j] * factor + kOffset<codebook> * input_sum;
}

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

template <Codebook codebook, int K>
void multiply_one(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t, float* z,
                  std::byte*) {
  const auto* x = reinterpret_cast<const float*>(form);
  std::memset(z, 0, kBlockColumns * sizeof(float));
  for (std::int64_t chunk = 0; chunk < in_features / kChunkRows; ++chunk) {
    float lifted[kChunkRows];
    for (int i = 0; i < kChunkRows; ++i) lifted[i] = x[chunk * kChunkRows + i] * kLift<codebook>;
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      const std::byte* piece = block + piece_offset(in_features, K, strip, chunk * kBandsPerChunk);
      for (int band = 0; band < kBandsPerChunk; ++band, piece += piece_bytes(K)) {
        multiply_piece<codebook, K>(piece, lifted + band * kBandRows, z + strip * kStripColumns);
      }
    }
  }
  scale_sums<codebook>(z, x[in_features]);
}

// --- several rows ---

/// Decodes 16 rows x 32 columns to numbers times the lift, row-major.
template <Codebook codebook, int K>
void decode_piece(const std::byte* piece, float* out) {
  for (int vector = 0; vector < kVectors; ++vector) {
    for_states<K>(piece, vector, [&](auto step, U16 states) {
      constexpr int t = decltype(step)::value;
      F32 first, second;
      numbers<codebook>(states, first, second);
      float* at = out + step_row(t) * kStripColumns + first_column(vector, step_half(t));
      store(at, first * kLift<codebook>);
      store(at + 4 * kStripColumns, second * kLift<codebook>);
    });
  }
}

/// z[r][0..32) += x[r][0..16) * w for kRows rows, w [16][32].
template <int kRows>
void add_piece(const float* x, std::int64_t stride, const float* w, float* z) {
  for (int half = 0; half < 2; ++half) {
    F32 sums[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 4; ++j) sums[r][j] = load_floats(z + r * kBlockColumns + 16 * half + 4 * j);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kBandRows; ++i) {
      for (int j = 0; j < 4; ++j) {
        const F32 weights = load_floats(w + i * kStripColumns + 16 * half + 4 * j);
        for (int r = 0; r < kRows; ++r) sums[r][j] += weights * x[r * stride + i];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 4; ++j) store(z + r * kBlockColumns + 16 * half + 4 * j, sums[r][j]);
    }
  }
}

void add_piece_rows(const float* x, std::int64_t stride, std::int64_t rows, const float* w, float* z) {
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2) add_piece<2>(x + row * stride, stride, w, z + row * kBlockColumns);
  if (row < rows) add_piece<1>(x + row * stride, stride, w, z + row * kBlockColumns);
}

std::int64_t piece_scratch(std::int64_t, std::int64_t) {
  return kBandRows * kStripColumns * sizeof(float);
}

/// Decodes each piece once and applies it to every row.
template <Codebook codebook, int K>
void multiply_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows, float* z,
                   std::byte* scratch) {
  const auto* x = reinterpret_cast<const float*>(form);
  const std::int64_t stride = row_floats(in_features);
  auto* decoded = reinterpret_cast<float*>(scratch);
  std::memset(z, 0, static_cast<std::size_t>(rows * kBlockColumns) * sizeof(float));
  for (std::int64_t band = 0; band < in_features / kBandRows; ++band) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      decode_piece<codebook, K>(block + piece_offset(in_features, K, strip, band), decoded);
      add_piece_rows(x + band * kBandRows, stride, rows, decoded, z + strip * kStripColumns);
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    scale_sums<codebook>(z + row * kBlockColumns, x[row * stride + in_features]);
  }
}

// --- table ---

template <Codebook codebook, int K>
void fill_entry(KernelTable& table) {
  constexpr double kTolerance = 1e-3;
  table.entry(codebook, K, Regime::one) = {"portable fp32", &kFloatForm, kTolerance, no_scratch,
                                           multiply_one<codebook, K>};
  const TrellisKernel rows{"portable fp32 rows", &kFloatForm, kTolerance, piece_scratch, multiply_rows<codebook, K>};
  table.entry(codebook, K, Regime::few) = rows;
  table.entry(codebook, K, Regime::many) = rows;
}

template <Codebook codebook, int... K>
void fill_codebook(KernelTable& table, std::integer_sequence<int, K...>) {
  (fill_entry<codebook, K + 1>(table), ...);
}

}  // namespace

void add_trellis_kernels(KernelTable& table) {
  constexpr std::make_integer_sequence<int, kBitWidths> kAll;
  fill_codebook<Codebook::three_inst>(table, kAll);
  fill_codebook<Codebook::mcg>(table, kAll);
  fill_codebook<Codebook::mul1>(table, kAll);
}

}  // namespace pergola::portable
