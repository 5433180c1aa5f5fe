#include "backend/reference/linear.h"

#include <algorithm>
#include <vector>

#include "backend/reference/arithmetic.h"
#include "backend/reference/weights.h"
#include "trellis/hadamard.h"

namespace pergola::reference {

namespace {

constexpr std::int64_t kBlock = kHadamardBlock;  // also the width of the slice of outputs that is decoded at a time

/// One row's Hn(x * suh), its `width` inputs extended with zeros to the stored width.
void transform_input(const TrellisView& trellis, const float* suh, const float* x, std::int64_t width, float* xh) {
  double block[kBlock];
  for (std::int64_t start = 0; start < trellis.in_features; start += kBlock) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      block[i] = start + i < width ? static_cast<double>(x[start + i]) * suh[start + i] : 0.0;
    }
    hadamard_blocks(block);
    for (std::int64_t i = 0; i < kBlock; ++i) xh[start + i] = static_cast<float>(block[i]);
  }
}

/// The inputs that the inner weight multiplies: x itself, or the transformed rows in `storage`.
struct Inputs {
  std::vector<float> storage;
  const float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t width = 0;
};

Inputs prepare_inputs(const LinearView& linear, const float* x, std::int64_t x_stride, std::int64_t rows) {
  const TrellisView* trellis = linear.trellis();
  if (trellis == nullptr) return {{}, x, x_stride, linear.in_features};
  std::vector<float> suh(static_cast<std::size_t>(trellis->in_features));
  read_halves(trellis->suh, 0, trellis->in_features, suh.data());
  Inputs inputs{std::vector<float>(static_cast<std::size_t>(rows * trellis->in_features)), nullptr,
                trellis->in_features, trellis->in_features};
  for (std::int64_t r = 0; r < rows; ++r) {
    transform_input(*trellis, suh.data(), x + r * x_stride, linear.in_features,
                    inputs.storage.data() + r * inputs.stride);
  }
  inputs.data = inputs.storage.data();
  return inputs;
}

/// Outputs [first, first + kBlock) of every row.
void linear_block(const LinearView& linear, const Inputs& inputs, std::int64_t first, std::int64_t rows, float* y,
                  std::int64_t y_stride) {
  const TrellisView* trellis = linear.trellis();
  const std::int64_t count = std::min(kBlock, linear.out_features - first);
  const std::int64_t decoded = trellis ? kBlock : count;
  std::vector<float> weight(static_cast<std::size_t>(decoded * inputs.width));
  float svh[kBlock] = {};
  float bias[kBlock] = {};
  if (trellis) {
    decode_columns(*trellis, first, kBlock, weight.data());
    read_halves(trellis->svh, first, kBlock, svh);
  } else {
    read_dense(*linear.dense(), first * inputs.width, count * inputs.width, weight.data());
  }
  if (linear.bias) read_dense(*linear.bias, first, count, bias);

  double sums[kBlock];
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < decoded; ++j)
      sums[j] = dot(inputs.data + r * inputs.stride, weight.data() + j * inputs.width, inputs.width);
    if (trellis) {
      hadamard_blocks(sums);
      for (std::int64_t j = 0; j < kBlock; ++j) sums[j] *= svh[j];
    }
    for (std::int64_t j = 0; j < count; ++j) y[r * y_stride + first + j] = static_cast<float>(sums[j] + bias[j]);
  }
}

}  // namespace

void apply_linear(const LinearView& linear, const float* x, std::int64_t x_stride, std::int64_t rows, float* y,
                  std::int64_t y_stride, ThreadPool* pool) {
  if (rows == 0) return;
  const Inputs inputs = prepare_inputs(linear, x, x_stride, rows);
  const std::int64_t blocks = (linear.out_features + kBlock - 1) / kBlock;
  const auto run = [&](std::int64_t block, int) { linear_block(linear, inputs, block * kBlock, rows, y, y_stride); };
  if (pool != nullptr) {
    pool->parallel_for(blocks, run);
  } else {
    for (std::int64_t block = 0; block < blocks; ++block) run(block, 0);
  }
}

}  // namespace pergola::reference
