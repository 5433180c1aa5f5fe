#include "engine/step_budget.h"

#include <gtest/gtest.h>

namespace pergola {
namespace {

TEST(StepBudget, PromptsAloneGetEverything) {
  EXPECT_EQ(StepBudget(512, 0).prefill_rows(0), 512);
  EXPECT_EQ(StepBudget(512, 64).prefill_rows(0), 512);
}

TEST(StepBudget, FixedChunkIsKeptWithinTheStep) {
  const StepBudget budget(100, 64);
  EXPECT_EQ(budget.prefill_rows(1), 64);
  EXPECT_EQ(budget.prefill_rows(60), 40);
  EXPECT_EQ(budget.prefill_rows(100), 0);
}

TEST(StepBudget, AdaptsToWhatRowsCost) {
  StepBudget budget(512, 0);
  EXPECT_EQ(budget.prefill_rows(4), StepBudget::kFirstChunk);
  for (int i = 0; i < 200; ++i) {
    budget.observe(4, 0, 0.010);
    const std::int64_t rows = budget.prefill_rows(4);
    budget.observe(4, rows, 0.010 + 0.0001 * static_cast<double>(rows));
  }
  // Twice as long: 10 ms more, at 0.1 ms a row.
  EXPECT_NEAR(static_cast<double>(budget.prefill_rows(4)), 100, 5);
}

TEST(StepBudget, NeverStarvesPrompts) {
  StepBudget budget(512, 0);
  budget.observe(1, 0, 0.001);
  budget.observe(1, 32, 1.0);
  EXPECT_EQ(budget.prefill_rows(1), StepBudget::kLeastChunk);
}

}  // namespace
}  // namespace pergola
