#include "quantize/allocation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace pergola {
namespace {

/// The linears of a 35B mixture of experts: 40 layers, every fourth full attention, 256 experts of width 512.
std::vector<AllocationGroup> large_moe() {
  std::vector<AllocationGroup> groups;
  constexpr std::int64_t kHidden = 2048;
  for (int layer = 0; layer < 40; ++layer) {
    const auto add = [&](const char* name, std::int64_t weights, int priority, int hq) {
      groups.push_back({name, {}, weights, layer, priority, hq});
    };
    if (layer % 4 == 3) {
      add("qkv", kHidden * (8192 + 512 + 512), 2, 2);
      add("o", kHidden * 4096, 2, 2);
    } else {
      add("qkvz", kHidden * (8192 + 4096), 1, 2);
      add("out", kHidden * 4096, 1, 2);
    }
    add("experts", 256 * 3 * kHidden * 512, 0, 0);
    add("shared_gate_up", 2 * kHidden * 512, 0, 2);
    add("shared_down", kHidden * 512, 0, 2);
  }
  return groups;
}

TEST(Allocation, FollowsThePublishedRule) {
  const auto groups = large_moe();
  const auto bits = allocate_bits(groups, 40, 3.5, false);
  EXPECT_NEAR(mean_bits(groups, bits), 3.5, 1e-4);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const int layer = groups[i].layer;
    if (groups[i].name == "experts") {
      EXPECT_EQ(bits[i], layer >= 10 && layer <= 30 ? 3 : 4) << layer;
    } else if (groups[i].name == "qkv") {
      EXPECT_EQ(bits[i], layer == 3 || layer == 7 || layer == 35 || layer == 39 ? 5 : 4) << layer;
    } else if (groups[i].name == "o") {
      EXPECT_EQ(bits[i], layer == 3 || layer == 35 || layer == 39 ? 5 : 4) << layer;
    } else if (groups[i].name == "shared_gate_up") {
      EXPECT_EQ(bits[i], layer == 0 ? 5 : 4) << layer;
    } else {
      EXPECT_EQ(bits[i], 4) << groups[i].name << layer;
    }
  }
}

TEST(Allocation, HighQualityRaisesOutsideTheBudget) {
  const auto groups = large_moe();
  EXPECT_NEAR(mean_bits(groups, allocate_bits(groups, 40, 3.5, true)), 3.5387, 1e-4);
  const auto whole = allocate_bits(groups, 40, 4.0, true);
  EXPECT_NEAR(mean_bits(groups, whole), 4.0836, 1e-4);
  for (std::size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(whole[i], groups[i].name == "experts" ? 4 : 6);
}

TEST(Allocation, StaysWithinTheFormat) {
  const auto groups = large_moe();
  for (int bits : allocate_bits(groups, 40, 8.0, true)) EXPECT_EQ(bits, 8);
  for (int bits : allocate_bits(groups, 40, 1.0, false)) EXPECT_EQ(bits, 1);
  for (double bad : {0.9, 8.1, -1.0, std::nan("")}) EXPECT_THROW(allocate_bits(groups, 40, bad, false), Error);
}

TEST(Allocation, EqualImportanceIsThePublishedRule) {
  const auto groups = large_moe();
  for (const double bits : {2.0, 3.1, 3.5, 4.0}) {
    const auto published = allocate_bits(groups, 40, bits, false);
    std::int64_t weights = 0;
    for (const AllocationGroup& group : groups) weights += group.weights;
    EXPECT_EQ(allocate_by_importance(groups, 40, static_cast<std::int64_t>(bits * static_cast<double>(weights))),
              published)
        << bits;
  }
}

TEST(Allocation, ImportantGroupsGetMoreWithinTheBudget) {
  auto groups = large_moe();
  for (AllocationGroup& group : groups) {
    if (group.name != "experts") group.importance = 9;
  }
  const std::int64_t budget = total_bits(groups, allocate_bits(groups, 40, 3.0, false));
  const auto bits = allocate_by_importance(groups, 40, budget);
  EXPECT_LE(total_bits(groups, bits), budget);
  EXPECT_GT(total_bits(groups, bits), budget / 1000 * 995);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].name == "experts") {
      EXPECT_LE(bits[i], 3);
    } else {
      EXPECT_GE(bits[i], 4) << groups[i].name;
    }
  }
}

}  // namespace
}  // namespace pergola
