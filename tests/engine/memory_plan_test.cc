#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelInfo info() {
  return {.architecture = "A", .vocab_size = 1000, .hidden_size = 8, .layers = 2, .max_positions = 32768};
}

/// 1 MB of weights, 1,000 bytes a token, 50 kB a slot, 10 kB of work space.
ModelPlan needs() {
  return {.weights = {{"head", 400'000}, {"experts", 600'000}},
          .work = {{"activations", 10'000}},
          .kv_bytes_per_token = 1000,
          .state_bytes_per_slot = 50'000};
}

MemoryPlan plan(const MemoryOptions& options, std::uint64_t available = 1'000'000'000) {
  return plan_memory(info(), needs(), 512, options, {available, "this machine"});
}

std::uint64_t bytes_of(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryPart& part : plan.parts) {
    if (part.name == name) return part.bytes;
  }
  return 0;
}

std::string refusal(const MemoryPlan& plan) {
  try {
    require_fit(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryPlan, DefaultContextIsEightThousandOrTheModelsLimit) {
  EXPECT_EQ(plan({}).context, 8192);
  ModelInfo small = info();
  small.max_positions = 2048;
  EXPECT_EQ(plan_memory(small, needs(), 512, {}, {1'000'000'000, ""}).context, 2048);
}

TEST(MemoryPlan, PartsAddUp) {
  const MemoryPlan result = plan({.context = 1000, .max_sequences = 3, .logit_rows = 2});
  EXPECT_EQ(result.pages, 3 * 4);  // 1,000 tokens need four pages of 256
  EXPECT_EQ(bytes_of(result, "weights"), 1'000'000u);
  EXPECT_EQ(bytes_of(result, "KV cache"), 12u * 256 * 1000);
  EXPECT_EQ(bytes_of(result, "states and windows"), 150'000u);
  EXPECT_EQ(bytes_of(result, "logits"), 2u * 1000 * 4);
  EXPECT_GT(bytes_of(result, "work space"), 10'000u);
  std::uint64_t sum = 0;
  for (const MemoryPart& part : result.parts) sum += part.bytes;
  EXPECT_EQ(result.total(), sum);
  EXPECT_TRUE(result.fits());
}

TEST(MemoryPlan, CacheBytesBoundThePages) {
  EXPECT_EQ(plan({.context = 512, .max_sequences = 10, .kv_cache_bytes = 5 * 256 * 1000}).pages, 5);
  // More than every sequence can use is not taken.
  EXPECT_EQ(plan({.context = 512, .max_sequences = 1, .kv_cache_bytes = 500 * 256 * 1000}).pages, 2);
}

TEST(MemoryPlan, CacheTooSmallForOneSequenceIsRefused) {
  try {
    plan({.context = 2048, .kv_cache_bytes = 3 * 256 * 1000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--kv-cache-bytes"), HasSubstr("768 tokens"), HasSubstr("2048")));
  }
}

TEST(MemoryPlan, ContextBeyondTheModelIsRefusedWithTheNumbers) {
  try {
    plan({.context = 40000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--context"), HasSubstr("40000"), HasSubstr("32768")));
  }
}

TEST(MemoryPlan, ExactFitIsAccepted) {
  const std::uint64_t total = plan({}).total();
  EXPECT_EQ(refusal(plan({}, total)), "");
  EXPECT_NE(refusal(plan({}, total - 1)), "");
}

TEST(MemoryPlan, RefusalNamesTheLargestPartsAndTheirFlags) {
  const std::string text = refusal(plan({.context = 32768}, 5'000'000));
  EXPECT_THAT(text, AllOf(HasSubstr("33"), HasSubstr("5.00 MB"), HasSubstr("KV cache"), HasSubstr("--context"),
                          HasSubstr("weights")));
  EXPECT_LT(text.find("KV cache"), text.find("weights"));  // the larger first
}

}  // namespace
}  // namespace pergola
