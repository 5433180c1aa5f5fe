#include "format/logits_file.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.h"
#include "format/tensor_values.h"

namespace pergola {
namespace {

const TensorEntry& require(const TensorTable& tensors, const std::filesystem::path& path, std::string_view name,
                           std::size_t rank) {
  const TensorEntry* entry = tensors.find(name);
  if (entry == nullptr) fail({.file = path.string(), .tensor = std::string(name)}, "the tensor is missing");
  if (entry->shape.size() != rank) {
    fail({.file = path.string(), .tensor = entry->name}, "expected {} dimensions, found shape {}", rank,
         shape_text(entry->shape));
  }
  return *entry;
}

std::vector<SafetensorsWriter::Tensor> declare(std::size_t ids, std::int64_t sequences, std::int64_t vocab_size) {
  assert(sequences > 0 && ids % static_cast<std::size_t>(sequences) == 0);
  const std::int64_t positions = static_cast<std::int64_t>(ids) / sequences;
  return {{"input_ids", DType::i32, {sequences, positions}},
          {"logits", DType::f32, {sequences, positions, vocab_size}}};
}

}  // namespace

LogitsFile::LogitsFile(const std::filesystem::path& path) : tensors_({path}) {
  const TensorEntry& ids = require(tensors_, path, "input_ids", 2);
  logits_ = &require(tensors_, path, "logits", 3);
  sequences_ = ids.shape[0];
  positions_ = ids.shape[1];
  vocab_size_ = logits_->shape[2];
  if (ids.dtype != DType::i32)
    fail({.file = path.string(), .tensor = ids.name}, "expected I32, found {}", name_of(ids.dtype));
  const Where where{.file = path.string(), .tensor = logits_->name};
  if (!is_float_weight(logits_->dtype)) fail(where, "expected F32, F16 or BF16, found {}", name_of(logits_->dtype));
  if (logits_->shape[0] != sequences_ || logits_->shape[1] != positions_ || vocab_size_ < 1 || ids.bytes.empty()) {
    fail(where, "shape {} does not fit input_ids {}", shape_text(logits_->shape), shape_text(ids.shape));
  }
  ids_.resize(static_cast<std::size_t>(ids.elements()));
  std::memcpy(ids_.data(), ids.bytes.data(), ids.bytes.size());
  for (const std::int32_t id : ids_) {
    if (id < 0 || id >= vocab_size_) {
      fail({.file = path.string(), .tensor = ids.name}, "token id {} is outside the vocabulary of {}", id, vocab_size_);
    }
  }
}

std::span<const std::int32_t> LogitsFile::ids(std::int64_t sequence) const {
  assert(sequence >= 0 && sequence < sequences_);
  return std::span(ids_).subspan(static_cast<std::size_t>(sequence * positions_), static_cast<std::size_t>(positions_));
}

void LogitsFile::read(std::int64_t sequence, std::int64_t position, std::span<float> out) const {
  assert(sequence >= 0 && sequence < sequences_ && position >= 0 && position < positions_);
  const std::size_t row_bytes = static_cast<std::size_t>(vocab_size_) * size_of(logits_->dtype);
  const auto row = static_cast<std::size_t>(sequence * positions_ + position);
  read_floats({logits_->dtype, 1, vocab_size_, logits_->bytes.subspan(row * row_bytes, row_bytes)}, out);
}

LogitsWriter::LogitsWriter(const std::filesystem::path& path, std::span<const std::int32_t> ids, std::int64_t sequences,
                           std::int64_t vocab_size)
    : writer_(path, declare(ids.size(), sequences, vocab_size)) {
  writer_.write(std::as_bytes(ids));
}

}  // namespace pergola
