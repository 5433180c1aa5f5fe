#include "engine/batch_builder.h"

#include <algorithm>
#include <cassert>

namespace pergola {

BatchBuilder::Layout::Layout(const StepLimits& limits) {
  tokens = 0;
  positions = tokens + limits.rows;
  row_sequence = positions + limits.rows;
  row_start = row_sequence + limits.rows;
  slots = row_start + limits.sequences + 1;
  logit_rows = slots + limits.sequences;
  page_table = logit_rows + limits.logit_rows;
  total = page_table + limits.sequences * limits.pages_per_sequence;
}

std::size_t BatchBuilder::device_bytes(const StepLimits& limits) {
  return static_cast<std::size_t>(Layout(limits).total) * sizeof(std::int32_t);
}

BatchBuilder::BatchBuilder(Backend& backend, const StepLimits& limits)
    : backend_(backend),
      limits_(limits),
      layout_(limits),
      buffer_(backend.allocate(device_bytes(limits), "the description of a step")),
      staging_(static_cast<std::size_t>(layout_.total), 0) {}

Tensor BatchBuilder::part_of_buffer(std::int64_t first, std::int64_t rows, std::int64_t columns,
                                    std::int64_t stride) const {
  return {.buffer = buffer_.get(),
          .offset = first * static_cast<std::int64_t>(sizeof(std::int32_t)),
          .dtype = DType::i32,
          .rows = rows,
          .columns = columns,
          .stride = stride};
}

void BatchBuilder::build(std::span<const StepPart> parts) {
  assert(!parts.empty() && static_cast<std::int64_t>(parts.size()) <= limits_.sequences);
  std::int32_t* const stage = staging_.data();
  std::int64_t row = 0;
  std::int64_t logits = 0;
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    const Sequence& sequence = *part.sequence;
    const std::int64_t first = sequence.computed();
    assert(part.rows > 0 && part.rows <= sequence.pending() && part.logit_rows >= 0 && part.logit_rows <= part.rows);
    assert(row + part.rows <= limits_.rows && logits + part.logit_rows <= limits_.logit_rows);
    stage[layout_.row_start + static_cast<std::int64_t>(i)] = static_cast<std::int32_t>(row);
    stage[layout_.slots + static_cast<std::int64_t>(i)] = sequence.slot();
    for (std::int64_t r = 0; r < part.rows; ++r) {
      stage[layout_.tokens + row + r] = sequence.tokens()[static_cast<std::size_t>(first + r)];
      stage[layout_.positions + row + r] = static_cast<std::int32_t>(first + r);
      stage[layout_.row_sequence + row + r] = static_cast<std::int32_t>(i);
    }
    for (std::int64_t r = part.rows - part.logit_rows; r < part.rows; ++r) {
      stage[layout_.logit_rows + logits++] = static_cast<std::int32_t>(row + r);
    }
    const auto pages = sequence.pages();
    assert(static_cast<std::int64_t>(pages.size()) <= limits_.pages_per_sequence);
    std::copy(pages.begin(), pages.end(),
              stage + layout_.page_table + static_cast<std::int64_t>(i) * limits_.pages_per_sequence);
    row += part.rows;
    longest = std::max(longest, part.rows);
  }
  const auto sequences = static_cast<std::int64_t>(parts.size());
  stage[layout_.row_start + sequences] = static_cast<std::int32_t>(row);

  const std::int64_t used = layout_.page_table + sequences * limits_.pages_per_sequence;
  backend_.upload(part_of_buffer(0, 1, used, used), stage);
  batch_ = describe(row, sequences, longest);
  logit_rows_ = logit_rows(logits);
}

Batch BatchBuilder::describe(std::int64_t rows, std::int64_t sequences, std::int64_t longest) const {
  return {.rows = rows,
          .sequences = sequences,
          .max_rows_per_sequence = longest,
          .tokens = part_of_buffer(layout_.tokens, 1, rows, rows),
          .positions = part_of_buffer(layout_.positions, 1, rows, rows),
          .row_sequence = part_of_buffer(layout_.row_sequence, 1, rows, rows),
          .row_start = part_of_buffer(layout_.row_start, 1, sequences + 1, sequences + 1),
          .slots = part_of_buffer(layout_.slots, 1, sequences, sequences),
          .page_table =
              part_of_buffer(layout_.page_table, sequences, limits_.pages_per_sequence, limits_.pages_per_sequence)};
}

}  // namespace pergola
