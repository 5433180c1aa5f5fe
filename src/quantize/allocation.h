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
  int priority = 0;      ///< higher gets spare bits first: attention 2, delta net 1, experts and gated MLPs 0
  int hq_increment = 0;  ///< what `--hq` raises it by over the base width
};

/// K for each group: all start at the whole part of `bits`, then each in turn (priority, nearness to either end of the
/// stack, layer) gets one more bit as long as the sum stays within bits * weights, round after round. `hq` then raises
/// the groups with an increment, outside that budget. K stays within 1..8. This is the published converter's rule
/// (docs/exl3.md). Throws Error for bits outside [1, 8].
std::vector<int> allocate_bits(std::span<const AllocationGroup> groups, int layers, double bits, bool hq);

/// The mean K over the groups' weights.
double mean_bits(std::span<const AllocationGroup> groups, std::span<const int> bits);

}  // namespace pergola
