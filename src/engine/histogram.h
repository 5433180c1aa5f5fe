#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pergola {

/// Counts of values by upper bound, as Prometheus wants them.
class Histogram {
 public:
  /// `bounds` ascend; values above the last have a count of their own.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}

  void add(double value) {
    const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<std::size_t>(place)];
    sum_ += value;
  }

  std::span<const double> bounds() const { return bounds_; }
  /// One more than there are bounds.
  std::span<const std::uint64_t> counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace pergola
