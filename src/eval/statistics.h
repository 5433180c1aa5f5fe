#pragma once

#include <span>

namespace pergola {

double mean(std::span<const double> values);

/// Standard error of the mean (sample standard deviation over the root of the count); 0 for fewer than two values.
double standard_error(std::span<const double> values);

/// The value below which the fraction `q` of `values` lies, linear between neighbours. `values` is not empty and need
/// not be sorted.
double quantile(std::span<const double> values, double q);

inline double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

/// An interval that holds the true mean with 95 % probability, by the normal approximation of the mean's distribution.
struct Interval {
  double low = 0;
  double high = 0;
};

Interval confidence_95(std::span<const double> values);

/// The middle of repeated measurements and how far they lie apart.
struct Measured {
  double median = 0;
  double low = 0;   ///< smallest
  double high = 0;  ///< largest
};

Measured measured(std::span<const double> values);

}  // namespace pergola
