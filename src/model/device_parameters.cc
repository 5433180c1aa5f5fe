#include "model/device_parameters.h"

#include "format/tensor_values.h"

namespace pergola {

Tensor DeviceParameters::add(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                             std::string_view what) {
  buffers_.push_back(backend_.allocate(bytes_of(rows * columns), what));
  const Tensor tensor{buffers_.back().get(), 0, DType::f32, rows, columns, columns};
  backend_.upload(tensor, values.data());
  return tensor;
}

Tensor DeviceParameters::add(const DenseView& view, std::string_view what) {
  return add(to_floats(view), view.rows, view.columns, what);
}

RmsNorm DeviceParameters::add(const NormBlueprint& norm, std::string_view what) {
  std::vector<float> factors = to_floats(norm.weight);
  if (norm.zero_centred) {
    for (float& factor : factors) factor += 1.0f;
  }
  return {add(factors, norm.weight.rows, norm.weight.columns, what), norm.eps};
}

}  // namespace pergola
