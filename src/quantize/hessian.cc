#include "quantize/hessian.h"

#include <Eigen/Cholesky>
#include <Eigen/Dense>
#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/error.h"
#include "quantize/product_kernel.h"

namespace pergola {
namespace {

constexpr std::int64_t kBlock = 16;
/// Columns of the sum that one task owns: wide enough for the product kernel, narrow enough to feed every thread.
constexpr std::int64_t kStripe = 64;

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Matrix<float, kBlock, kBlock, Eigen::RowMajor>;

bool all_finite(const float* values, std::int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

}  // namespace

Hessian::Hessian(std::int64_t features) : features_(features), sum_(static_cast<std::size_t>(features * features)) {}

void Hessian::add(std::span<const float> inputs, std::int64_t rows, ThreadPool& pool) {
  assert(std::ssize(inputs) == rows * features_);
  const float* x = inputs.data();
  std::int64_t kept = rows;
  if (!all_finite(x, rows * features_)) {
    clean_.clear();
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* values = x + row * features_;
      if (all_finite(values, features_)) clean_.insert(clean_.end(), values, values + features_);
    }
    kept = std::ssize(clean_) / features_;
    x = clean_.data();
  }
  skipped_ += rows - kept;
  count_ += kept;
  const ProductKernel product = product_kernel();
  pool.parallel_for((features_ + kStripe - 1) / kStripe, [&](std::int64_t stripe, int) {
    const std::int64_t first = stripe * kStripe, width = std::min(kStripe, features_ - first);
    product(x, features_, x + first, features_, sum_.data() + first, features_, features_, width, kept);
  });
}

bool Hessian::usable() const {
  if (count_ == 0) return false;
  double trace = 0;
  for (std::int64_t i = 0; i < features_; ++i) trace += double{sum_[static_cast<std::size_t>(i * (features_ + 1))]};
  return std::isfinite(trace) && trace / static_cast<double>(count_ * features_) > 1e-20;
}

float Hessian::mean(std::int64_t i, std::int64_t j) const {
  return sum_[static_cast<std::size_t>(i * features_ + j)] / static_cast<float>(count_);
}

BlockLdl factor(std::vector<float> matrix, std::int64_t features, double damping) {
  assert(features % kBlock == 0 && std::ssize(matrix) == features * features);
  Eigen::Map<Matrix> h(matrix.data(), features, features);
  const double mean_diagonal = h.diagonal().cast<double>().mean();
  BlockLdl result;
  result.features = features;
  Eigen::LLT<Matrix> cholesky;
  double added = 0;
  for (int attempt = 0;; ++attempt) {
    if (attempt == 11)
      fail({}, "the Hessian of {} inputs cannot be factored, even with its diagonal raised by {:.1f} of its mean",
           features, added);
    h.diagonal().array() += static_cast<float>((damping - added) * mean_diagonal);
    added = damping;
    cholesky.compute(h);
    if (cholesky.info() == Eigen::Success) break;
    damping = std::max(damping * 2, 1e-3);
  }
  result.damping = added;
  const Matrix c = cholesky.matrixL();
  result.lower.assign(static_cast<std::size_t>(features * features), 0.0f);
  result.root.resize(static_cast<std::size_t>(features * kBlock));
  Eigen::Map<Matrix> lower(result.lower.data(), features, features);
  for (std::int64_t first = 0; first < features; first += kBlock) {
    const Block root = c.block<kBlock, kBlock>(first, first);
    Eigen::Map<Block>(result.root.data() + first * kBlock) = root;
    const std::int64_t below = features - first;
    // L = C blockdiag(C_ii)^-1: solve X root = C for the block column.
    lower.block(first, first, below, kBlock) =
        root.triangularView<Eigen::Lower>().solve<Eigen::OnTheRight>(c.block(first, first, below, kBlock));
  }
  return result;
}

}  // namespace pergola
