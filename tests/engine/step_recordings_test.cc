#include "engine/step_recordings.h"

#include <gtest/gtest.h>

namespace pergola {
namespace {

TEST(StepRecordings, AreMadeForAsManySequencesAsAStepCanHave) {
  EXPECT_EQ(StepRecordings::most_sequences({.rows = 2048, .sequences = 8, .pages_per_sequence = 4, .logit_rows = 8}),
            8);
  EXPECT_EQ(StepRecordings::most_sequences({.rows = 4, .sequences = 8, .pages_per_sequence = 4, .logit_rows = 8}), 4);
  EXPECT_EQ(StepRecordings::most_sequences({.rows = 4, .sequences = 8, .pages_per_sequence = 4, .logit_rows = 1}), 1);
  EXPECT_EQ(StepRecordings::most_sequences({.rows = 512, .sequences = 512, .pages_per_sequence = 4, .logit_rows = 512}),
            StepRecordings::kMostSequences);
}

TEST(StepRecordings, FindNothingWhereNothingWasRecorded) {
  Batch batch;
  batch.rows = batch.sequences = batch.max_rows_per_sequence = 1;
  EXPECT_EQ(StepRecordings().find(batch, 1), nullptr);
}

}  // namespace
}  // namespace pergola
