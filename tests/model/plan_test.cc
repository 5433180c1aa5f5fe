#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "support/loaded_tiny.h"

namespace pergola {
namespace {

using testing::LoadedTiny;
using testing::TinyQwen;

std::size_t bytes_of(const std::vector<ModelPlan::Part>& parts, std::string_view name) {
  for (const ModelPlan::Part& part : parts) {
    if (part.name == name) return part.bytes;
  }
  return 0;
}

TinyQwen exl3_moe() {
  TinyQwen tiny;
  tiny.experts = 4;
  tiny.intermediate = 96;
  tiny.weights = TinyQwen::Weights::exl3;
  return tiny;
}

TEST(ModelPlan, CountsWhatAModelAllocates) {
  for (const TinyQwen& tiny : {TinyQwen{}, exl3_moe()}) {
    LoadedTiny loaded(tiny, 3, 64);
    const ModelPlan plan = Model::plan(loaded.checkpoint, loaded.backend);
    // The reference backend reads weights where they are mapped, so a model itself allocates small weights, work space
    // and caches.
    const std::size_t expected =
        bytes_of(plan.weights, "norms and small weights") + plan.work_bytes() + plan.cache_bytes({3 * 4, 16, 3});
    EXPECT_EQ(loaded.backend.allocated(), expected);
  }
}

TEST(ModelPlan, CountsEveryStoredByteOfTheWeights) {
  const TinyQwen tiny = exl3_moe();
  LoadedTiny loaded(tiny);
  const ModelPlan plan = Model::plan(loaded.checkpoint, loaded.backend);
  std::size_t stored = 0;
  for (const TensorEntry& entry : loaded.checkpoint.entries()) {
    const bool marker = entry.shape.empty();
    const bool small = entry.name.find("norm") != std::string::npos || entry.name.ends_with("conv1d.weight") ||
                       entry.name.ends_with("A_log") || entry.name.ends_with("dt_bias");
    if (!marker && !small) stored += entry.bytes.size();
  }
  EXPECT_EQ(plan.weight_bytes() - bytes_of(plan.weights, "norms and small weights"), stored);
}

TEST(ModelPlan, KnowsTheCachesOfAKnownShape) {
  const TinyQwen tiny;  // one attention layer of 2 kv heads x 64, three delta nets
  LoadedTiny loaded(tiny);
  const ModelPlan plan = Model::plan(loaded.checkpoint, loaded.backend);
  EXPECT_EQ(plan.kv_bytes_per_token, 2u * 2 * 64 * 4);
  EXPECT_EQ(plan.state_bytes_per_slot, 3u * 4 * (6 * 32 * 64 + 3 * (2 * 2 * 32 + 6 * 64)));
  EXPECT_EQ(plan.total_bytes({10, 16, 2}),
            plan.weight_bytes() + plan.work_bytes() + 160 * plan.kv_bytes_per_token + 2 * plan.state_bytes_per_slot);
}

TEST(ModelLoad, ReportsProgressUpToTheEnd) {
  LoadedTiny loaded(exl3_moe());
  std::uint64_t last = 0;
  std::uint64_t whole = 0;
  int calls = 0;
  Model::load(loaded.checkpoint, loaded.backend, [&](const std::string&, std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    whole = total;
    ++calls;
  });
  EXPECT_EQ(last, whole);
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(calls, 4 + 2);  // layers, embedding, head
}

}  // namespace
}  // namespace pergola
