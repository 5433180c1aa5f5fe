#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pergola {

/// Linears that get the same K: what shares an input, or all routed experts of a layer.
struct AllocationGroup {
  std::string name;
  std::vector<std::string> keys;  ///< the linears, by tensor prefix
  std::int64_t weights = 0;
  int layer = 0;
  int priority = 0;       ///< higher gets spare bits first: attention 2, delta net 1, experts and gated MLPs 0
  int hq_increment = 0;   ///< what `--hq` raises it by over the base width
  double importance = 1;  ///< cost of an error of its weights, relative to the other groups
};

/// K for each group: all start at the whole part of `bits`, then each in turn (priority, nearness to either end of the
/// stack, layer) gets one more bit as long as the sum stays within bits * weights, round after round. `hq` then raises
/// the groups with an increment, outside that budget. K stays within 1..8. This is the published converter's rule
/// (docs/exl3.md). Throws Error for bits outside [1, 8].
std::vector<int> allocate_bits(std::span<const AllocationGroup> groups, int layers, double bits, bool hq);

/// K for each group so that the sum of importance * weights * 4^-K is least, which is how the cost of quantisation
/// falls with K, and the sum of K * weights stays within `budget`. One bit at a time, each to the group that gains most
/// by it; equals in the order of `allocate_bits`. With equal importance that is the published rule.
std::vector<int> allocate_by_importance(std::span<const AllocationGroup> groups, int layers, std::int64_t budget);

/// The sum of K * weights.
std::int64_t total_bits(std::span<const AllocationGroup> groups, std::span<const int> bits);

/// The mean K over the groups' weights.
double mean_bits(std::span<const AllocationGroup> groups, std::span<const int> bits);

}  // namespace pergola
