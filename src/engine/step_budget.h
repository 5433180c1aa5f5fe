#pragma once

#include <array>
#include <cstdint>

namespace pergola {

/// How many tokens of prompts a step may compute beside sequences that are writing. More make prompts finish sooner and
/// every running stream wait longer for its next token. Unless the number is fixed it is such that a step takes about
/// kSlowdown times what it would take without prompts, as far as earlier steps tell.
class StepBudget {
 public:
  static constexpr double kSlowdown = 2.0;
  static constexpr std::int64_t kLeastChunk = 16;
  static constexpr std::int64_t kFirstChunk = 32;  ///< while nothing is known

  /// `max_rows`: most rows of a step. `fixed_chunk` 0: adapt.
  StepBudget(std::int64_t max_rows, std::int64_t fixed_chunk) : max_rows_(max_rows), fixed_chunk_(fixed_chunk) {}

  /// Rows for prompts in a step in which `decoding` sequences write a token each.
  std::int64_t prefill_rows(std::int64_t decoding) const;

  /// Tells it how long a step took.
  void observe(std::int64_t decoding, std::int64_t prefill, double seconds);

 private:
  /// Expected seconds of a step without prompts, 0 if nothing is known.
  double decode_seconds(std::int64_t decoding) const;

  std::int64_t max_rows_;
  std::int64_t fixed_chunk_;
  std::array<double, 64> decode_seconds_{};  ///< by bit width of the number of sequences; 0: never seen
  double prefill_row_seconds_ = 0;
};

}  // namespace pergola
