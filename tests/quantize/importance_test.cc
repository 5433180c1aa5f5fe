#include "quantize/importance.h"

#include <gtest/gtest.h>

#include <map>

#include "model/architectures.h"
#include "quantize/allocation.h"
#include "quantize/linear_tasks.h"
#include "support/tiny_conversion.h"

namespace pergola {
namespace {

using testing::convertible;
using testing::random_tokens;
using testing::TempFolder;

TEST(Importance, IsTheCostBroughtToOneWidth) {
  // A cost that falls by 4 with every bit has the same importance at both widths.
  const GroupCost cost{"group", 10, 3, {1.0, 0.25}};
  EXPECT_DOUBLE_EQ(cost.importance(), 64.0 / 10);
  const GroupCost none{"group", 10, 3, {-1e-9, 0}};
  EXPECT_GT(none.importance(), 0);
}

TEST(Importance, SlowEveryGroupCostsLessWithMoreBits) {
  constexpr std::int64_t kLength = 32;
  const TempFolder folder;
  convertible().write(folder / ".");
  const Checkpoint source(folder / ".");
  ModelBlueprint model = read_blueprint(source);
  const auto backend = open_backend("cpu", {.threads = 2, .precision = Precision::exact, .max_rows = kLength});
  ThreadPool pool(2);
  QuantizeOptions options;
  options.bits = 3;
  const std::vector<GroupCost> costs =
      measure_importance(source, model, {random_tokens(4 * kLength, 200), kLength}, options, *backend, pool, {});
  std::map<std::string, std::int64_t> weights;
  for (const GroupCost& cost : costs) {
    EXPECT_EQ(cost.bits, 3) << cost.group;
    EXPECT_GT(cost.kl[0], 1e-6) << cost.group;
    EXPECT_LT(cost.kl[1], cost.kl[0]) << cost.group;
    EXPECT_TRUE(weights.emplace(cost.group, cost.weights).second) << cost.group;
  }
  for (const AllocationGroup& group : allocation_groups(model)) EXPECT_TRUE(weights.contains(group.name)) << group.name;
}

}  // namespace
}  // namespace pergola
