#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace pergola::testing {

/// A tensor with memory of its own on a backend, filled from and read back to host values.
class DeviceTensor {
 public:
  DeviceTensor(Backend& backend, std::int64_t rows, std::int64_t columns, const std::vector<float>& values)
      : DeviceTensor(backend, DType::f32, rows, columns, values.empty() ? nullptr : values.data()) {}
  DeviceTensor(Backend& backend, const std::vector<float>& row)
      : DeviceTensor(backend, 1, static_cast<std::int64_t>(row.size()), row) {}
  DeviceTensor(Backend& backend, std::int64_t rows, std::int64_t columns, const std::vector<std::int32_t>& values)
      : DeviceTensor(backend, DType::i32, rows, columns, values.data()) {}
  /// f32 zeros.
  DeviceTensor(Backend& backend, std::int64_t rows, std::int64_t columns)
      : DeviceTensor(backend, DType::f32, rows, columns, nullptr) {}

  operator const Tensor&() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

  std::vector<float> values() const {
    backend_->synchronize();
    std::vector<float> result(static_cast<std::size_t>(tensor_.rows * tensor_.columns));
    backend_->download(result.data(), tensor_);
    return result;
  }

 private:
  DeviceTensor(Backend& backend, DType type, std::int64_t rows, std::int64_t columns, const void* values)
      : backend_(&backend), buffer_(backend.allocate(static_cast<std::size_t>(rows * columns) * 4, "test")) {
    tensor_ = {buffer_.get(), 0, type, rows, columns, columns};
    if (values != nullptr) backend.upload(tensor_, values);
  }

  Backend* backend_;
  std::unique_ptr<Buffer> buffer_;
  Tensor tensor_;
};

/// The batch of pieces of sequences: `rows[s]` tokens from position `positions[s]` on, in slot `slots[s]`, with the
/// given page table.
class DeviceBatch {
 public:
  DeviceBatch(Backend& backend, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& first_positions,
              const std::vector<std::int32_t>& slots, const std::vector<std::int32_t>& page_table) {
    std::vector<std::int32_t> positions, row_sequence, row_start{0};
    for (std::size_t s = 0; s < rows.size(); ++s) {
      for (std::int64_t i = 0; i < rows[s]; ++i) {
        positions.push_back(static_cast<std::int32_t>(first_positions[s] + i));
        row_sequence.push_back(static_cast<std::int32_t>(s));
      }
      row_start.push_back(static_cast<std::int32_t>(positions.size()));
      batch_.max_rows_per_sequence = std::max(batch_.max_rows_per_sequence, rows[s]);
    }
    batch_.rows = static_cast<std::int64_t>(positions.size());
    batch_.sequences = static_cast<std::int64_t>(rows.size());
    batch_.positions = keep(backend, 1, positions);
    batch_.row_sequence = keep(backend, 1, row_sequence);
    batch_.row_start = keep(backend, 1, row_start);
    batch_.slots = keep(backend, 1, slots);
    batch_.page_table = keep(backend, batch_.sequences, page_table);
  }

  operator const Batch&() const { return batch_; }

 private:
  Tensor keep(Backend& backend, std::int64_t rows, const std::vector<std::int32_t>& values) {
    tensors_.emplace_back(backend, rows, static_cast<std::int64_t>(values.size()) / rows, values);
    return tensors_.back();
  }

  std::vector<DeviceTensor> tensors_;
  Batch batch_;
};

}  // namespace pergola::testing
