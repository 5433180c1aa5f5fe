#include "engine/step_budget.h"

#include <algorithm>
#include <bit>

namespace pergola {
namespace {

std::size_t bucket_of(std::int64_t decoding) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(decoding)));
}

void blend(double& average, double value) {
  constexpr double kWeight = 0.1;
  average = average == 0 ? value : average + kWeight * (value - average);
}

}  // namespace

double StepBudget::decode_seconds(std::int64_t decoding) const {
  // Fewer sequences take less time, so the next smaller bucket is a careful guess.
  for (std::size_t bucket = bucket_of(decoding) + 1; bucket-- > 0;) {
    if (decode_seconds_[bucket] > 0) return decode_seconds_[bucket];
  }
  return 0;
}

std::int64_t StepBudget::prefill_rows(std::int64_t decoding) const {
  const std::int64_t room = std::max<std::int64_t>(max_rows_ - decoding, 0);
  if (decoding == 0) return room;
  if (fixed_chunk_ > 0) return std::min(fixed_chunk_, room);
  const double base = decode_seconds(decoding);
  if (base == 0 || prefill_row_seconds_ == 0) return std::min(kFirstChunk, room);
  const double rows = (kSlowdown - 1) * base / prefill_row_seconds_;
  const auto wanted = static_cast<std::int64_t>(std::min(rows, static_cast<double>(max_rows_)));
  return std::min(std::max(wanted, kLeastChunk), room);
}

void StepBudget::observe(std::int64_t decoding, std::int64_t prefill, double seconds) {
  if (prefill == 0) {
    blend(decode_seconds_[bucket_of(decoding)], seconds);
  } else if (decoding > 0 && decode_seconds(decoding) > 0) {
    // Steps of prompts alone do not count: many rows at once are cheaper by the row.
    const double extra = std::max(seconds - decode_seconds(decoding), 0.1 * seconds);
    blend(prefill_row_seconds_, extra / static_cast<double>(prefill));
  }
}

}  // namespace pergola
