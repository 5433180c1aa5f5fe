#include "quantize/allocation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "trellis/tile.h"

namespace pergola {

namespace {

/// The order in which groups get spare bits: priority, then nearness to either end of the stack, then layer.
std::vector<std::size_t> spare_order(std::span<const AllocationGroup> groups, int layers) {
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](const AllocationGroup& group) {
      return std::tuple(-group.priority, std::min(group.layer, layers - 1 - group.layer), group.layer);
    };
    return rank(groups[a]) < rank(groups[b]);
  });
  return order;
}

}  // namespace

std::vector<int> allocate_bits(std::span<const AllocationGroup> groups, int layers, double bits, bool hq) {
  if (!(bits >= kMinBits && bits <= kMaxBits))
    fail({.field = "--bits"}, "{} bits a weight cannot be stored; take {} to {}", bits, kMinBits, kMaxBits);
  const int base = static_cast<int>(std::floor(bits));
  std::int64_t weights = 0;
  for (const AllocationGroup& group : groups) weights += group.weights;
  std::int64_t spare = static_cast<std::int64_t>(bits * static_cast<double>(weights)) - base * weights;

  const std::vector<std::size_t> order = spare_order(groups, layers);
  std::vector<int> result(groups.size(), base);
  for (bool given = true; given;) {
    given = false;
    for (std::size_t index : order) {
      if (result[index] == kMaxBits || groups[index].weights > spare) continue;
      ++result[index];
      spare -= groups[index].weights;
      given = true;
    }
  }
  for (std::size_t index = 0; hq && index < groups.size(); ++index) {
    if (groups[index].hq_increment > 0)
      result[index] = std::min(kMaxBits, std::max(result[index], base + groups[index].hq_increment));
  }
  return result;
}

std::vector<int> allocate_by_importance(std::span<const AllocationGroup> groups, int layers, std::int64_t budget) {
  const std::vector<std::size_t> order = spare_order(groups, layers);
  std::vector<int> bits(groups.size(), kMinBits);
  std::int64_t spare = budget - total_bits(groups, bits);
  for (;;) {
    double most = 0;
    std::size_t chosen = groups.size();
    for (std::size_t index : order) {
      if (bits[index] == kMaxBits || groups[index].weights > spare) continue;
      const double gain = groups[index].importance * std::ldexp(1.0, -2 * bits[index]);
      if (gain <= most) continue;
      most = gain;
      chosen = index;
    }
    if (chosen == groups.size()) return bits;
    ++bits[chosen];
    spare -= groups[chosen].weights;
  }
}

std::int64_t total_bits(std::span<const AllocationGroup> groups, std::span<const int> bits) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) sum += groups[i].weights * bits[i];
  return sum;
}

double mean_bits(std::span<const AllocationGroup> groups, std::span<const int> bits) {
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    sum += static_cast<double>(groups[i].weights) * bits[i];
    weights += static_cast<double>(groups[i].weights);
  }
  return weights > 0 ? sum / weights : 0;
}

}  // namespace pergola
