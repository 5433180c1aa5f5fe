#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/sequence.h"

namespace pergola {

/// The share of one sequence in a step: its next `rows` pending tokens; logits are wanted after the last `logit_rows`
/// of them.
struct StepPart {
  Sequence* sequence = nullptr;
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;
};

/// Bounds of every step, from which the buffers are sized.
struct StepLimits {
  std::int64_t rows = 0;
  std::int64_t sequences = 0;
  std::int64_t pages_per_sequence = 0;
  std::int64_t logit_rows = 0;
};

/// Writes steps down for a device. All integers of a step lie in one device buffer at fixed places and travel in one
/// upload; the same places in every step are what a recorded step needs.
class BatchBuilder {
 public:
  BatchBuilder(Backend& backend, const StepLimits& limits);

  static std::size_t device_bytes(const StepLimits& limits);

  /// Prepares and uploads a step. Every sequence has its pages; the sums are within the limits; no part is empty.
  void build(std::span<const StepPart> parts);

  const Batch& batch() const { return batch_; }
  /// i32 [1, n]: the rows of the step whose logits are wanted, parts in order.
  const Tensor& logit_rows() const { return logit_rows_; }

  /// A step of that shape, whatever is written at its places: for recordings.
  Batch describe(std::int64_t rows, std::int64_t sequences, std::int64_t longest) const;
  /// The place of the first n rows whose logits are wanted.
  Tensor logit_rows(std::int64_t n) const { return part_of_buffer(layout_.logit_rows, 1, n, n); }

 private:
  /// Where each list starts in the buffer, in integers. The page table is last: only the rows in use are uploaded.
  struct Layout {
    explicit Layout(const StepLimits& limits);
    std::int64_t tokens, positions, row_sequence, row_start, slots, logit_rows, page_table, total;
  };

  Tensor part_of_buffer(std::int64_t first, std::int64_t rows, std::int64_t columns, std::int64_t stride) const;

  Backend& backend_;
  StepLimits limits_;
  Layout layout_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<std::int32_t> staging_;
  Batch batch_;
  Tensor logit_rows_;
};

}  // namespace pergola
