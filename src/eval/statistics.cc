#include "eval/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

namespace pergola {

double mean(std::span<const double> values) {
  assert(!values.empty());
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_error(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

double quantile(std::span<const double> values, double q) {
  assert(!values.empty() && q >= 0 && q <= 1);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Interval confidence_95(std::span<const double> values) {
  constexpr double kNormal95 = 1.959964;
  const double center = mean(values);
  const double reach = kNormal95 * standard_error(values);
  return {center - reach, center + reach};
}

Measured measured(std::span<const double> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {median(values), *low, *high};
}

}  // namespace pergola
