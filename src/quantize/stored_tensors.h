#pragma once

#include <span>
#include <vector>

#include "format/safetensors_writer.h"
#include "quantize/linear_quantizer.h"
#include "trellis/tile.h"

namespace pergola {

/// A tensor to be written: its declaration and where its bytes are.
struct StoredTensor {
  SafetensorsWriter::Tensor declaration;
  std::span<const std::byte> bytes;
};

/// The tensors of one encoded linear: trellis, suh, svh and the marker of its codebook (none for 3inst). Bytes point
/// into `linear`.
std::vector<StoredTensor> stored_tensors(const std::string& key, const QuantizedLinear& linear);

/// Writes all tensors as one safetensors file, under another name first.
void write_tensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors);

}  // namespace pergola
