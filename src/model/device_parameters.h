#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/blueprint.h"

namespace pergola {

/// Small weights of a model in device memory (norms, convolutions, decay parameters, frequencies), as f32. Owns their
/// buffers.
class DeviceParameters {
 public:
  explicit DeviceParameters(Backend& backend) : backend_(backend) {}

  /// A copy of the values as a [rows, columns] tensor.
  Tensor add(std::span<const float> values, std::int64_t rows, std::int64_t columns, std::string_view what);
  Tensor add(const DenseView& view, std::string_view what);
  /// The factor that the norm multiplies by: the weight, or 1 + weight formed in fp32.
  RmsNorm add(const NormBlueprint& norm, std::string_view what);

  /// Device memory taken by an [elements] parameter.
  static std::size_t bytes_of(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace pergola
