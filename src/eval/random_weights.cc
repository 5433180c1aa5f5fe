#include "eval/random_weights.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace pergola {
namespace {

constexpr std::int64_t kBlock = 128;  ///< both widths of a trellis are multiples of it

std::int64_t padded(std::int64_t width) {
  return (width + kBlock - 1) / kBlock * kBlock;
}

/// `values` in the stored form of `dtype`.
std::vector<std::byte> stored(const std::vector<float>& values, DType dtype) {
  const std::size_t size = size_of(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t narrow = dtype == DType::f16 ? to_half(values[i]).bits : to_bfloat16(values[i]).bits;
    std::memcpy(bytes.data() + i * size, dtype == DType::f32 ? static_cast<const void*>(&values[i]) : &narrow, size);
  }
  return bytes;
}

}  // namespace

std::span<const std::byte> RandomWeights::keep(std::vector<std::byte> bytes) {
  return storage_.emplace_back(std::move(bytes));
}

std::vector<float> RandomWeights::floats(std::int64_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator_);
  return values;
}

DenseView RandomWeights::dense(DType dtype, std::int64_t rows, std::int64_t columns) {
  assert(is_float_weight(dtype));
  const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
  return {
      .dtype = dtype, .rows = rows, .columns = columns, .bytes = keep(stored(floats(rows * columns, scale), dtype))};
}

LinearView RandomWeights::dense_linear(std::int64_t in, std::int64_t out, DType dtype) {
  return {.name = "random dense", .in_features = in, .out_features = out, .weight = dense(dtype, out, in)};
}

std::span<const std::byte> RandomWeights::signs(std::int64_t count, float magnitude) {
  std::uniform_real_distribution<float> factor(0.5f, 1.5f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = magnitude * factor(generator_) * ((generator_() & 1u) != 0 ? 1.0f : -1.0f);
  return keep(stored(values, DType::f16));
}

LinearView RandomWeights::trellis_linear(std::int64_t in, std::int64_t out, int bits, Codebook codebook, bool bias) {
  TrellisView view{.in_features = padded(in), .out_features = padded(out), .bits = bits, .codebook = codebook};
  std::vector<std::byte> words(static_cast<std::size_t>(view.in_features * view.out_features * bits / 8));
  for (std::byte& byte : words) byte = static_cast<std::byte>(generator_());
  view.trellis = keep(std::move(words));
  view.suh = signs(view.in_features, 1.0f);
  view.svh = signs(view.out_features, 1.0f / std::sqrt(static_cast<float>(in)));
  LinearView linear{.name = "random trellis", .in_features = in, .out_features = out, .weight = view};
  if (bias) linear.bias = dense(DType::f16, 1, out);
  return linear;
}

}  // namespace pergola
