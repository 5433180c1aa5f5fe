#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "format/safetensors.h"
#include "format/safetensors_writer.h"

namespace pergola {

/// A file of logits: `input_ids` I32 [sequences, positions] and `logits` F32, F16 or BF16 [sequences, positions,
/// vocabulary], where row (s, p) holds the logits after reading ids 0..p of sequence s.
class LogitsFile {
 public:
  /// Maps the file. Throws Error naming the tensor that is missing or misshapen, or an id outside the vocabulary.
  explicit LogitsFile(const std::filesystem::path& path);

  std::int64_t sequences() const { return sequences_; }
  std::int64_t positions() const { return positions_; }
  std::int64_t vocab_size() const { return vocab_size_; }

  /// The token ids of one sequence.
  std::span<const std::int32_t> ids(std::int64_t sequence) const;
  /// Copies one row; `out` has vocab_size elements.
  void read(std::int64_t sequence, std::int64_t position, std::span<float> out) const;

 private:
  TensorTable tensors_;
  const TensorEntry* logits_ = nullptr;
  std::int64_t sequences_ = 0;
  std::int64_t positions_ = 0;
  std::int64_t vocab_size_ = 0;
  std::vector<std::int32_t> ids_;
};

/// Writes such a file, rows in order, as F32. The file has its name only after `finish`.
class LogitsWriter {
 public:
  /// `ids` holds sequences x positions token ids, row-major. Throws Error when the file cannot be created.
  LogitsWriter(const std::filesystem::path& path, std::span<const std::int32_t> ids, std::int64_t sequences,
               std::int64_t vocab_size);

  /// Appends one or more rows. Throws Error when the disk is full.
  void write(std::span<const float> rows) { writer_.write(std::as_bytes(rows)); }
  void finish() { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

}  // namespace pergola
