#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace pergola {

/// The mean of x^T x over the inputs that a linear met: what an error in each weight costs.
class Hessian {
 public:
  explicit Hessian(std::int64_t features);

  std::int64_t features() const { return features_; }
  /// Rows added so far, and rows left out because a value was not finite.
  std::int64_t count() const { return count_; }
  std::int64_t skipped() const { return skipped_; }

  /// Adds `rows` inputs, row-major [rows, features]. Sums do not depend on the number of threads.
  void add(std::span<const float> inputs, std::int64_t rows, ThreadPool& pool);

  /// Whether there is enough to calibrate with: at least one row, finite, not all zero.
  bool usable() const;

  /// Element (i, j) of the mean.
  float mean(std::int64_t i, std::int64_t j) const;

 private:
  std::int64_t features_;
  std::int64_t count_ = 0;
  std::int64_t skipped_ = 0;
  std::vector<float> sum_;    ///< row-major, complete (both triangles)
  std::vector<float> clean_;  ///< finite rows of the last add
};

/// The factors of a Hessian H = L D L^T in blocks of 16 (exl3: block LDL): L unit block lower triangular, D block
/// diagonal.
struct BlockLdl {
  std::int64_t features = 0;
  std::vector<float> lower;  ///< L, row-major [features, features]; zero above the diagonal blocks
  std::vector<float>
      root;  ///< the diagonal blocks of the Cholesky factor, D_i = root_i root_i^T, [features/16, 16, 16] row-major
  double damping = 0;  ///< what was added to the diagonal, as a share of its mean
};

/// Factors `matrix` (symmetric, row-major [features, features], features a multiple of 16) after adding `damping` times
/// its mean diagonal to the diagonal; doubles the damping, up to ten times, while the factorisation fails. Throws Error
/// if it never succeeds.
BlockLdl factor(std::vector<float> matrix, std::int64_t features, double damping);

}  // namespace pergola
