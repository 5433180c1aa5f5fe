#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/recording.h"
#include "engine/batch_builder.h"
#include "model/language_model.h"

namespace pergola {

/// Decode steps (one token of each of n sequences, all logits wanted) that the device recorded at the start, one a
/// batch size. Empty where the backend cannot record.
class StepRecordings {
 public:
  static constexpr std::int64_t kMostSequences = 64;

  StepRecordings() = default;
  /// Records sizes 1 .. kMostSequences, as far as the limits allow. `logits` has limits.logit_rows rows.
  StepRecordings(Backend& backend, LanguageModel& model, const BatchBuilder& builder, const StepLimits& limits,
                 const Tensor& logits);

  /// The largest size to record.
  static std::int64_t most_sequences(const StepLimits& limits);

  /// The recording for this step; null where there is none and the step has to be issued.
  RecordedStep* find(const Batch& batch, std::int64_t logit_rows) const;

 private:
  std::vector<std::unique_ptr<RecordedStep>> steps_;  ///< [n - 1]
};

}  // namespace pergola
