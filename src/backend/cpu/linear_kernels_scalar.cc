// Portable kernels of the output transform and of dense weights, and the table of all portable kernels.

#include <array>
#include <cstring>
#include <span>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/portable_kernels.h"
#include "trellis/hadamard.h"

namespace pergola {
namespace {

void finish_block(float* z, const Half* svh, const float* bias, std::int64_t count, float* out) {
  hadamard_blocks(std::span(z, kBlockColumns));
  for (std::int64_t j = 0; j < count; ++j) out[j] = z[j] * to_float(svh[j]) + (bias != nullptr ? bias[j] : 0.0f);
}

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

}  // namespace

void add_scalar_kernels(KernelTable& table) {
  table.isa = Isa::scalar;
  for (RowLimits& limits : table.limits) limits = {2, 24};
  table.finish = finish_block;
  table.dense_f32 = multiply_dense<AsFloat>;
  table.dense_f16 = multiply_dense<AsSmall<Half>>;
  table.dense_bf16 = multiply_dense<AsSmall<BFloat16>>;
  portable::add_trellis_kernels(table);
}

}  // namespace pergola
