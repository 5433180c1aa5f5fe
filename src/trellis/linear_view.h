#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/dtype.h"
#include "trellis/codebook.h"

namespace pergola {

/// Bytes of a dense tensor as stored, row-major [rows, columns]. The bytes may start at any alignment.
struct DenseView {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const std::byte> bytes;
};

/// One EXL3 matrix as stored: a grid of packed 16x16 tiles and two sign-and-scale vectors. All spans may start at any
/// alignment. in_features and out_features are the stored widths: multiples of 128.
struct TrellisView {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  int bits = 0;  ///< K, bits per weight, 1..8
  Codebook codebook = Codebook::three_inst;
  std::span<const std::byte> trellis;  ///< in_features/16 x out_features/16 tiles of 32*K bytes
  std::span<const std::byte> suh;      ///< binary16 [in_features]
  std::span<const std::byte> svh;      ///< binary16 [out_features]
};

/// One linear layer y = W x + bias, wherever its weights come from. Logical widths are what the model uses; a trellis
/// may be padded beyond them (inputs are extended with zeros, outputs are cut). A dense weight has rows = out_features,
/// columns = in_features.
struct LinearView {
  std::string name;  ///< for messages, e.g. "model.layers.0.mlp.down_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::variant<DenseView, TrellisView> weight;
  std::optional<DenseView> bias;  ///< [1, out_features]

  const TrellisView* trellis() const { return std::get_if<TrellisView>(&weight); }
  const DenseView* dense() const { return std::get_if<DenseView>(&weight); }
};

}  // namespace pergola
