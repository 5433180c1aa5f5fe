#include "format/tensor_values.h"

#include <cassert>
#include <cstring>

#include "base/half.h"

namespace pergola {
namespace {

template <typename Stored>
void convert(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = to_float(value);
  }
}

}  // namespace

void read_floats(const DenseView& view, std::span<float> out) {
  assert(static_cast<std::int64_t>(out.size()) == view.rows * view.columns &&
         view.bytes.size() == out.size() * size_of(view.dtype));
  switch (view.dtype) {
    case DType::f32:
      std::memcpy(out.data(), view.bytes.data(), out.size_bytes());
      break;
    case DType::f16:
      convert<Half>(view.bytes, out);
      break;
    case DType::bf16:
      convert<BFloat16>(view.bytes, out);
      break;
    default:
      assert(!"not a float weight");
  }
}

std::vector<float> to_floats(const DenseView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.columns));
  read_floats(view, values);
  return values;
}

}  // namespace pergola
