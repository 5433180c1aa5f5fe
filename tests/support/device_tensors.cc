#include "support/device_tensors.h"

#include <cstring>

#include "base/cpu_features.h"
#include "base/half.h"

namespace pergola::testing {

namespace {

void write_element(DType type, float value, std::byte* out) {
  if (type == DType::f32) {
    std::memcpy(out, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
  std::memcpy(out, &bits, 2);
}

float read_element(DType type, const std::byte* in) {
  float value = 0;
  if (type == DType::f32) {
    std::memcpy(&value, in, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, in, 2);
  return type == DType::f16 ? to_float(Half{bits}) : to_float(BFloat16{bits});
}

}  // namespace

Tensor DeviceTensors::make(std::int64_t rows, std::int64_t columns, DType type) {
  const std::int64_t stride = columns + padding_;
  const std::size_t bytes = static_cast<std::size_t>((rows + 2) * stride + padding_) * size_of(type);
  buffers_.push_back(backend_.allocate(bytes > 0 ? bytes : 1, "a test"));
  // Everything is NaN first (all bits set); the tensor starts one row into its buffer.
  const Tensor all{buffers_.back().get(),           0, DType::u8, 1, static_cast<std::int64_t>(bytes),
                   static_cast<std::int64_t>(bytes)};
  backend_.upload(all, std::vector<std::byte>(bytes, std::byte{0xFF}).data());
  return {buffers_.back().get(), stride * static_cast<std::int64_t>(size_of(type)), type, rows, columns, stride};
}

Tensor DeviceTensors::floats(const std::vector<float>& values, std::int64_t rows, DType type) {
  const Tensor tensor = make(rows, rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0, type);
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) write_element(type, values[i], bytes.data() + i * size_of(type));
  backend_.upload(tensor, bytes.data());
  return tensor;
}

Tensor DeviceTensors::result(std::int64_t rows, std::int64_t columns, DType type) {
  return make(rows, columns, type);
}

Tensor DeviceTensors::ints(const std::vector<std::int32_t>& values, std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  buffers_.push_back(backend_.allocate(values.size() * 4 + 4, "a test"));
  const Tensor tensor{buffers_.back().get(), 0, DType::i32, rows, columns, columns};
  backend_.upload(tensor, values.data());
  return tensor;
}

std::vector<float> DeviceTensors::read(const Tensor& tensor) const {
  const auto count = static_cast<std::size_t>(tensor.rows * tensor.columns);
  std::vector<std::byte> bytes(count * size_of(tensor.dtype));
  backend_.download(bytes.data(), tensor);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(read_element(tensor.dtype, bytes.data() + i * size_of(tensor.dtype)));
  }
  return values;
}

std::vector<CpuVariant> cpu_variants() {
  std::vector<CpuVariant> variants{{"scalar", 1}, {"scalar", 2}};
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::amx}) {
    if (isa > cpu_features().best) continue;
    for (const int threads : {1, 2, 3}) variants.push_back({std::string(name_of(isa)), threads});
  }
  return variants;
}

}  // namespace pergola::testing
