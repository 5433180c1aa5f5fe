// Portable kernels: states are looked up in the 65,536-entry table of their codebook, arithmetic is fp32.

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"
#include "trellis/decode.h"
#include "trellis/hadamard.h"

namespace pergola {
namespace {

// --- activations and outputs ---

std::int64_t float_bytes(std::int64_t in_features, std::int64_t rows) {
  return in_features * rows * static_cast<std::int64_t>(sizeof(float));
}

/// fp32 in natural order, row after row.
void prepare_floats(const float* x, std::int64_t count, const Half* suh, std::int64_t in_features, std::int64_t row,
                    std::int64_t, std::byte* form) {
  auto* out = reinterpret_cast<float*>(form) + row * in_features;
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] * to_float(suh[i]);
  for (std::int64_t i = count; i < in_features; ++i) out[i] = 0.0f;
  hadamard_blocks(std::span(out, static_cast<std::size_t>(in_features)));
}

constexpr ActivationForm kFloatForm{"fp32", float_bytes, prepare_floats};

void finish_block(float* z, const Half* svh, const float* bias, std::int64_t count, float* out) {
  hadamard_blocks(std::span(z, kBlockColumns));
  for (std::int64_t j = 0; j < count; ++j) out[j] = z[j] * to_float(svh[j]) + (bias != nullptr ? bias[j] : 0.0f);
}

// --- decoding ---

/// For every window of a lane's low and high half, the halfword it ends in with the one before it above: shifting right
/// gives states.
template <int K>
struct LaneWindows {
  std::uint32_t low[K];
  std::uint32_t high[K];
};

template <int K>
LaneWindows<K> lane_windows(const std::uint32_t* piece, int lane) {
  LaneWindows<K> windows;
  const int before = ((lane - 1) & 7) | (lane & 8);  // the stream is cyclic within a tile's eight lanes
  const std::uint32_t* last = piece + (K - 1) * kLanes;
  std::uint32_t low = last[before] >> 16;
  std::uint32_t high = last[lane] & 0xFFFFu;
  for (int i = 0; i < K; ++i) {
    const std::uint32_t plane = piece[i * kLanes + lane];
    low = (low << 16) | (plane & 0xFFFFu);
    high = (high << 16) | (plane >> 16);
    windows.low[i] = low;
    windows.high[i] = high;
  }
  return windows;
}

/// Calls use(integral_constant<int, T>) for the sixteen steps: indices are constants, so that shifts and rows are too.
template <typename Use, int... T>
inline void for_steps(Use&& use, std::integer_sequence<int, T...>) {
  (use(std::integral_constant<int, T>{}), ...);
}

template <typename Use>
inline void for_steps(Use&& use) {
  for_steps(use, std::make_integer_sequence<int, kSteps>{});
}

template <int K, int T>
inline float low_value(const LaneWindows<K>& windows, const float* table) {
  return table[(windows.low[window_index(K, T)] >> window_shift(K, T)) & 0xFFFFu];
}

template <int K, int T>
inline float high_value(const LaneWindows<K>& windows, const float* table) {
  return table[(windows.high[window_index(K, T)] >> window_shift(K, T)) & 0xFFFFu];
}

// --- products ---

template <int K>
void multiply_piece(const std::uint32_t* piece, const float* x, const float* table, float* z) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const LaneWindows<K> windows = lane_windows<K>(piece, lane);
    float sums[2][2] = {};  // [column half][row half]: four chains that do not wait for each other
    for_steps([&](auto step) {
      constexpr int t = decltype(step)::value;
      sums[step_half(t)][0] += low_value<K, t>(windows, table) * x[step_row(t)];
      sums[step_half(t)][1] += high_value<K, t>(windows, table) * x[step_row(t) + 4];
    });
    z[lane_column(lane, 0)] += sums[0][0] + sums[0][1];
    z[lane_column(lane, 1)] += sums[1][0] + sums[1][1];
  }
}

std::int64_t no_scratch(std::int64_t, std::int64_t) {
  return 0;
}

template <Codebook codebook, int K>
void multiply_one(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t, float* z,
                  std::byte*) {
  const float* table = codebook_table(codebook).data();
  const auto* x = reinterpret_cast<const float*>(form);
  std::memset(z, 0, kBlockColumns * sizeof(float));
  for (int strip = 0; strip < kStripsPerBlock; ++strip) {
    for (std::int64_t band = 0; band < in_features / kBandRows; ++band) {
      const std::byte* piece = block + piece_offset(in_features, K, strip, band);
      multiply_piece<K>(reinterpret_cast<const std::uint32_t*>(piece), x + band * kBandRows, table,
                        z + strip * kStripColumns);
    }
  }
}

/// Decodes 16 rows x 32 columns to fp32, row-major.
template <int K>
void decode_piece(const std::uint32_t* piece, const float* table, float* out) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const LaneWindows<K> windows = lane_windows<K>(piece, lane);
    for_steps([&](auto step) {
      constexpr int t = decltype(step)::value;
      float* at = out + step_row(t) * kStripColumns + lane_column(lane, step_half(t));
      at[0] = low_value<K, t>(windows, table);
      at[4 * kStripColumns] = high_value<K, t>(windows, table);
    });
  }
}

/// z[0..32) += x[0..16) * w, w [16][32].
void add_dense_piece(const float* x, const float* w, float* z) {
  float sums[kStripColumns];
  std::memcpy(sums, z, sizeof sums);
  for (int i = 0; i < kBandRows; ++i) {
    for (int j = 0; j < kStripColumns; ++j) sums[j] += x[i] * w[i * kStripColumns + j];
  }
  std::memcpy(z, sums, sizeof sums);
}

std::int64_t piece_scratch(std::int64_t, std::int64_t) {
  return kBandRows * kStripColumns * sizeof(float);
}

/// Decodes each piece once and applies it to every row.
template <Codebook codebook, int K>
void multiply_rows(const std::byte* block, std::int64_t in_features, const std::byte* form, std::int64_t rows, float* z,
                   std::byte* scratch) {
  const float* table = codebook_table(codebook).data();
  const auto* x = reinterpret_cast<const float*>(form);
  auto* decoded = reinterpret_cast<float*>(scratch);
  std::memset(z, 0, static_cast<std::size_t>(rows * kBlockColumns) * sizeof(float));
  for (std::int64_t band = 0; band < in_features / kBandRows; ++band) {
    for (int strip = 0; strip < kStripsPerBlock; ++strip) {
      const std::byte* piece = block + piece_offset(in_features, K, strip, band);
      decode_piece<K>(reinterpret_cast<const std::uint32_t*>(piece), table, decoded);
      for (std::int64_t row = 0; row < rows; ++row) {
        add_dense_piece(x + row * in_features + band * kBandRows, decoded,
                        z + row * kBlockColumns + strip * kStripColumns);
      }
    }
  }
}

// --- dense weights ---

struct AsFloat {
  static constexpr std::int64_t kBytes = 4;
  static float load(const std::byte* at) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
};

template <typename Small>
struct AsSmall {
  static constexpr std::int64_t kBytes = 2;
  static float load(const std::byte* at) {
    Small value;
    std::memcpy(&value.bits, at, sizeof value.bits);
    return to_float(value);
  }
};

/// Eight sums a dot product: the order of summation is fixed and a compiler may use vectors.
template <typename Element>
void multiply_dense(const std::byte* w, std::int64_t in_features, std::int64_t columns, const float* x,
                    std::int64_t x_stride, std::int64_t rows, float* out, std::int64_t out_stride) {
  constexpr int kSums = 8;
  for (std::int64_t j = 0; j < columns; ++j, w += in_features * Element::kBytes) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* input = x + r * x_stride;
      std::array<float, kSums> sums{};
      std::int64_t i = 0;
      for (; i + kSums <= in_features; i += kSums) {
        for (int s = 0; s < kSums; ++s) sums[s] += input[i + s] * Element::load(w + (i + s) * Element::kBytes);
      }
      for (int s = 0; i < in_features; ++i, ++s) sums[s] += input[i] * Element::load(w + i * Element::kBytes);
      for (int half = kSums / 2; half > 0; half /= 2) {
        for (int s = 0; s < half; ++s) sums[s] += sums[s + half];
      }
      out[r * out_stride + j] = sums[0];
    }
  }
}

// --- table ---

constexpr double kTolerance = 2e-6;

template <Codebook codebook, int K>
void fill_entry(KernelTable& table) {
  table.entry(codebook, K, Regime::one) = {"scalar table", &kFloatForm, kTolerance, no_scratch,
                                           multiply_one<codebook, K>};
  const TrellisKernel rows{"scalar table, rows", &kFloatForm, kTolerance, piece_scratch, multiply_rows<codebook, K>};
  table.entry(codebook, K, Regime::few) = rows;
  table.entry(codebook, K, Regime::many) = rows;
}

template <Codebook codebook, int... K>
void fill_codebook(KernelTable& table, std::integer_sequence<int, K...>) {
  (fill_entry<codebook, K + 1>(table), ...);
}

}  // namespace

void add_scalar_kernels(KernelTable& table) {
  table.isa = Isa::scalar;
  constexpr std::make_integer_sequence<int, kBitWidths> kAll;
  fill_codebook<Codebook::three_inst>(table, kAll);
  fill_codebook<Codebook::mcg>(table, kAll);
  fill_codebook<Codebook::mul1>(table, kAll);
  for (RowLimits& limits : table.limits) limits = {2, 24};
  table.finish = finish_block;
  table.dense_f32 = multiply_dense<AsFloat>;
  table.dense_f16 = multiply_dense<AsSmall<Half>>;
  table.dense_bf16 = multiply_dense<AsSmall<BFloat16>>;
}

}  // namespace pergola
