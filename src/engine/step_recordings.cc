#include "engine/step_recordings.h"

#include <algorithm>

namespace pergola {

std::int64_t StepRecordings::most_sequences(const StepLimits& limits) {
  return std::min({limits.sequences, limits.rows, limits.logit_rows, kMostSequences});
}

StepRecordings::StepRecordings(Backend& backend, LanguageModel& model, const BatchBuilder& builder,
                               const StepLimits& limits, const Tensor& logits) {
  auto* recorder = dynamic_cast<StepRecorder*>(&backend);
  if (recorder == nullptr) return;
  for (std::int64_t n = 1; n <= most_sequences(limits); ++n) {
    const Batch batch = builder.describe(n, n, 1);
    const Tensor rows = builder.logit_rows(n), to = logits.slice_rows(0, n);
    steps_.push_back(recorder->record([&] { model.forward(batch, rows, to); }));
  }
}

RecordedStep* StepRecordings::find(const Batch& batch, std::int64_t logit_rows) const {
  if (batch.max_rows_per_sequence != 1 || logit_rows != batch.rows ||
      batch.rows > static_cast<std::int64_t>(steps_.size()))
    return nullptr;
  return steps_[static_cast<std::size_t>(batch.rows - 1)].get();
}

}  // namespace pergola
