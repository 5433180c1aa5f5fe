#include "support/model_runner.h"

#include <algorithm>
#include <numeric>

namespace pergola::testing {

ModelRunner::ModelRunner(LanguageModel& model, Backend& backend, std::int64_t slots, std::int64_t positions,
                         std::int64_t page_size)
    : model_(model),
      backend_(backend),
      page_size_(page_size),
      pages_per_slot_((positions + page_size - 1) / page_size),
      slots_(slots),
      lengths_(static_cast<std::size_t>(slots), 0) {
  model_.allocate_caches({slots * pages_per_slot_, page_size, slots});
}

Tensor ModelRunner::ints(const std::vector<std::int32_t>& values, std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  step_buffers_.push_back(backend_.allocate(std::max<std::size_t>(values.size(), 1) * 4, "test input"));
  const Tensor tensor{step_buffers_.back().get(), 0, DType::i32, rows, columns, columns};
  backend_.upload(tensor, values.data());
  return tensor;
}

void ModelRunner::run(std::span<const Piece> pieces, const Tensor& logit_rows, const Tensor& logits) {
  std::vector<std::int32_t> tokens, positions, row_sequence, row_start{0}, slots, table;
  std::int64_t longest = 0;
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    const Piece& piece = pieces[s];
    std::int64_t& length = lengths_[static_cast<std::size_t>(piece.slot)];
    for (const std::int32_t token : piece.tokens) {
      tokens.push_back(token);
      positions.push_back(static_cast<std::int32_t>(length++));
      row_sequence.push_back(static_cast<std::int32_t>(s));
    }
    row_start.push_back(static_cast<std::int32_t>(tokens.size()));
    slots.push_back(static_cast<std::int32_t>(piece.slot));
    longest = std::max(longest, static_cast<std::int64_t>(piece.tokens.size()));
    // Pages of all slots interleave, last page first.
    for (std::int64_t p = 0; p < pages_per_slot_; ++p)
      table.push_back(static_cast<std::int32_t>((pages_per_slot_ - 1 - p) * slots_ + piece.slot));
  }
  Batch batch;
  batch.rows = static_cast<std::int64_t>(tokens.size());
  batch.sequences = static_cast<std::int64_t>(pieces.size());
  batch.max_rows_per_sequence = longest;
  batch.tokens = ints(tokens);
  batch.positions = ints(positions);
  batch.row_sequence = ints(row_sequence);
  batch.row_start = ints(row_start);
  batch.slots = ints(slots);
  batch.page_table = ints(table, batch.sequences);
  model_.forward(batch, logit_rows, logits);
  backend_.synchronize();
  step_buffers_.clear();
}

std::vector<float> ModelRunner::step(std::span<const Piece> pieces) {
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) rows += static_cast<std::int64_t>(piece.tokens.size());
  const std::int64_t vocab = model_.info().vocab_size;
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  const std::unique_ptr<Buffer> buffer = backend_.allocate(static_cast<std::size_t>(rows * vocab) * 4, "test logits");
  const Tensor logits{buffer.get(), 0, DType::f32, rows, vocab, vocab};
  run(pieces, ints(all), logits);
  std::vector<float> result(static_cast<std::size_t>(rows * vocab));
  backend_.download(result.data(), logits);
  return result;
}

std::vector<float> ModelRunner::sequence(std::int64_t slot, std::span<const std::int32_t> tokens, std::int64_t chunk) {
  reset(slot);
  std::vector<float> all;
  for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(chunk)) {
    const auto part = tokens.subspan(first, std::min(static_cast<std::size_t>(chunk), tokens.size() - first));
    const Piece piece{slot, {part.begin(), part.end()}};
    const std::vector<float> logits = step(std::span(&piece, 1));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

void ModelRunner::copy_state(std::int64_t from, std::int64_t to) {
  model_.copy_slot(ints({static_cast<std::int32_t>(from)}), to);
  backend_.synchronize();
  step_buffers_.clear();
  lengths_[static_cast<std::size_t>(to)] = lengths_[static_cast<std::size_t>(from)];
}

void ModelRunner::reset(std::int64_t slot) {
  model_.reset_slot(slot);
  lengths_[static_cast<std::size_t>(slot)] = 0;
}

}  // namespace pergola::testing
