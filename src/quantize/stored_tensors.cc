#include "quantize/stored_tensors.h"

#include <array>

namespace pergola {

namespace {

std::span<const std::byte> marker_bytes(Codebook codebook) {
  static constexpr std::array<std::uint32_t, 3> kMarkers{0, kMcgMultiplier, kMul1Multiplier};
  return std::as_bytes(std::span(kMarkers).subspan(static_cast<std::size_t>(codebook), 1));
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const std::string& key, const QuantizedLinear& linear) {
  const std::vector<std::int64_t> tiles{linear.in_features / kTileSide, linear.out_features / kTileSide,
                                        std::int64_t{kTileSide} * linear.bits};
  std::vector<StoredTensor> tensors{
      {{key + ".suh", DType::f16, {linear.in_features}}, std::as_bytes(std::span(linear.suh))},
      {{key + ".svh", DType::f16, {linear.out_features}}, std::as_bytes(std::span(linear.svh))},
      {{key + ".trellis", DType::i16, tiles}, linear.trellis},
  };
  if (linear.codebook != Codebook::three_inst) {
    tensors.push_back(
        {{key + "." + std::string(name_of(linear.codebook)), DType::i32, {}}, marker_bytes(linear.codebook)});
  }
  return tensors;
}

void write_tensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors) {
  std::vector<SafetensorsWriter::Tensor> declarations;
  for (const StoredTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  SafetensorsWriter writer(path, declarations);
  for (const StoredTensor& tensor : tensors) writer.write(tensor.bytes);
  writer.finish();
}

}  // namespace pergola
