#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace pergola::testing {

/// Runs a model on sequences of token ids, without the engine: every slot has pages of its own, taken in an order that
/// is not the identity.
class ModelRunner {
 public:
  /// A piece of one sequence: the tokens that follow what its slot has seen.
  struct Piece {
    std::int64_t slot = 0;
    std::vector<std::int32_t> tokens;
  };

  ModelRunner(LanguageModel& model, Backend& backend, std::int64_t slots, std::int64_t positions,
              std::int64_t page_size = 16);

  /// One step over the pieces; logits of every token, piece after piece, [tokens, vocab].
  std::vector<float> step(std::span<const Piece> pieces);
  /// The same without logits.
  void step_without_logits(std::span<const Piece> pieces) { run(pieces, {}, {}); }

  /// Feeds one sequence from its start in steps of at most `chunk` tokens.
  std::vector<float> sequence(std::int64_t slot, std::span<const std::int32_t> tokens, std::int64_t chunk);

  /// Makes slot `to` a copy of `from`: state and length. Pages are not copied.
  void copy_state(std::int64_t from, std::int64_t to);

  /// Forgets a slot's sequence.
  void reset(std::int64_t slot);

 private:
  Tensor ints(const std::vector<std::int32_t>& values, std::int64_t rows = 1);
  void run(std::span<const Piece> pieces, const Tensor& logit_rows, const Tensor& logits);

  LanguageModel& model_;
  Backend& backend_;
  std::int64_t page_size_;
  std::int64_t pages_per_slot_;
  std::int64_t slots_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::unique_ptr<Buffer>> step_buffers_;
};

}  // namespace pergola::testing
