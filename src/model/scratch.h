#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace pergola {

/// Lays out the intermediate tensors of one block inside the scratch memory that all blocks share. Tensors get offsets
/// here, not a buffer.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::int64_t max_rows) : max_rows_(max_rows) {}

  /// Room for max_rows rows.
  Tensor add(std::int64_t columns, DType dtype) {
    const Tensor tensor{nullptr, static_cast<std::int64_t>(bytes_), dtype, max_rows_, columns, columns};
    const auto size = static_cast<std::size_t>(max_rows_ * columns) * size_of(dtype);
    bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kAlignment = 256;

  std::int64_t max_rows_;
  std::size_t bytes_ = 0;
};

/// The scratch memory of a model: as large as its widest block, used by one block after the other.
class Scratch {
 public:
  /// Raises the size to what a block needs. Before `allocate`.
  void require(const ScratchLayout& layout) { bytes_ = std::max(bytes_, layout.bytes()); }
  void allocate(Backend& backend) { buffer_ = backend.allocate(bytes_, "work space of the blocks"); }

  std::size_t bytes() const { return bytes_; }

  /// The first `rows` rows of a laid-out tensor.
  Tensor view(Tensor tensor, std::int64_t rows) const {
    tensor.buffer = buffer_.get();
    return tensor.slice_rows(0, rows);
  }

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace pergola
