#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace pergola::testing {

/// Tensors of a backend made from host values, for tests that run one operation. Rows lie `padding` elements apart, and
/// the padding and everything around a tensor is NaN: an operation that reads it shows.
class DeviceTensors {
 public:
  explicit DeviceTensors(Backend& backend, std::int64_t padding = 0) : backend_(backend), padding_(padding) {}

  /// f32, f16 or bf16 of any values.
  Tensor floats(const std::vector<float>& values, std::int64_t rows, DType type = DType::f32);
  /// A tensor for results, full of NaN.
  Tensor result(std::int64_t rows, std::int64_t columns, DType type = DType::f32);
  /// i32 [rows, values / rows].
  Tensor ints(const std::vector<std::int32_t>& values, std::int64_t rows = 1);

  /// The elements of a tensor as floats, rows packed.
  std::vector<float> read(const Tensor& tensor) const;

 private:
  Tensor make(std::int64_t rows, std::int64_t columns, DType type);

  Backend& backend_;
  std::int64_t padding_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

/// Which backends to compare with the reference: instruction sets that are here, and team sizes.
struct CpuVariant {
  std::string isa;
  int threads;
};
std::vector<CpuVariant> cpu_variants();

}  // namespace pergola::testing
