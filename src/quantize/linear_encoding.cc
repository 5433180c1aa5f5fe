#include "quantize/linear_encoding.h"

#include <xxhash.h>

#include "format/trellis_tensors.h"
#include "trellis/decode.h"

namespace pergola {

namespace {

/// A dense weight as floats, row-major [padded out, padded in].
std::vector<float> padded_weight(const LinearView& view) {
  const DenseView& dense = *view.dense();
  const std::int64_t in = padded(view.in_features), out = padded(view.out_features);
  std::vector<float> weight(static_cast<std::size_t>(in * out));
  for (std::int64_t j = 0; j < view.out_features; ++j) {
    for (std::int64_t i = 0; i < view.in_features; ++i)
      weight[static_cast<std::size_t>(j * in + i)] = dense_element(dense, j * dense.columns + i);
  }
  return weight;
}

}  // namespace

std::int64_t padded(std::int64_t width) {
  return (width + kHadamardBlock - 1) / kHadamardBlock * kHadamardBlock;
}

QuantizedLinear encode_linear(LinearQuantizer& quantizer, const std::string& key, const LinearView& view, int bits,
                              const QuantizeOptions& options, const Hessian* hessian) {
  const std::vector<float> weight = padded_weight(view);
  const std::uint64_t seed = XXH3_64bits_withSeed(key.data(), key.size(), options.seed);
  return quantizer.encode(
      {key, padded(view.in_features), padded(view.out_features), weight, bits, options.codebook, seed}, hessian);
}

}  // namespace pergola
