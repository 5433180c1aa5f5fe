#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/thread_pool.h"
#include "quantize/hessian.h"
#include "trellis/codebook.h"
#include "trellis/linear_view.h"
#include "trellis/tile_batch_encoder.h"

namespace pergola {

/// One linear to be encoded.
struct LinearJob {
  std::string name;              ///< for messages
  std::int64_t in_features = 0;  ///< stored widths: multiples of 128, padded with zero weights
  std::int64_t out_features = 0;
  std::span<const float> weight;  ///< row-major [out_features, in_features], finite
  int bits = 4;
  Codebook codebook = Codebook::mul1;
  std::uint64_t seed = 0;  ///< of the random signs
};

/// An encoded linear and what the encoding cost.
struct QuantizedLinear {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  int bits = 0;
  Codebook codebook = Codebook::mul1;
  std::vector<std::byte> trellis;  ///< as TrellisView
  std::vector<Half> suh;
  std::vector<Half> svh;
  double scale = 0;  ///< the factor g between regularised weights and the codebook
  double proxy_error =
      0;  ///< tr(E^T H E) / tr(W^T H W), the error relative to the output's power; H = 1 without calibration
  double weight_error = 0;  ///< |E|^2 / |W|^2 in the regularised basis

  TrellisView view() const;
};

/// Encodes linears: signs and scales, the search for the scale, block LDLQ, the tile encoder (docs/exl3.md, "How
/// weights are encoded"). Keeps an encoder a thread and width. Results depend on the job, the Hessian and the
/// processor's instruction set or the device, not on the number of threads.
class LinearQuantizer {
 public:
  /// `device` may be null; otherwise it searches the tiles, all columns of a linear at a time, in place of the threads.
  explicit LinearQuantizer(ThreadPool& pool, TileBatchEncoder* device = nullptr);
  ~LinearQuantizer();
  LinearQuantizer(const LinearQuantizer&) = delete;
  LinearQuantizer& operator=(const LinearQuantizer&) = delete;

  /// `hessian` may be null (or not usable): then every weight counts the same.
  QuantizedLinear encode(const LinearJob& job, const Hessian* hessian);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pergola
