#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/index_range.h"

namespace pergola {

/// What one rank has to talk to the others with. Every rank makes the same calls in the same order, each in a thread of
/// its own; tensors are of the rank's backend and have the same shape on every rank. Sums are added in a
/// fixed order, so that a result depends on the number of ranks only, and are the same to the bit on every rank.
///
/// A call throws Error in one sentence when another rank has aborted, or does not come within the time limit: no rank
/// waits for ever.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// x = the sum of every rank's x; f32 [rows, columns].
  virtual void all_reduce(const Tensor& x) = 0;

  /// out = rows shares[rank()] of the sum of every rank's x; out f32 [shares[rank()].count, columns].
  virtual void reduce_scatter(const Tensor& x, std::span<const IndexRange> shares, const Tensor& out) = 0;

  /// Rank r has written the columns shares[r] of x; afterwards every rank has all of them. f32.
  virtual void all_gather(const Tensor& x, std::span<const IndexRange> shares) = 0;

  /// Every tensor becomes what the root has in its own; shapes are equal, strides need not be.
  virtual void broadcast(std::span<const Tensor> tensors, int root) = 0;

  /// Tells the others that this rank cannot go on: what they wait for fails with this sentence. May be called from any
  /// thread.
  virtual void abort(std::string_view sentence) = 0;
};

/// Communicators of one group, one for each backend (which outlives it): over NCCL where every backend has a GPU of its
/// own and NCCL is there, else local ones. Throws Error when NCCL cannot start.
std::vector<std::unique_ptr<Communicator>> open_communicators(std::span<Backend* const> backends,
                                                              std::chrono::milliseconds limit);

/// Ranks of this process that talk through host memory, over backends of any kind; sums are added in the order of the
/// ranks. A rank that waits for another longer than `limit` gives up.
std::vector<std::unique_ptr<Communicator>> local_communicators(std::span<Backend* const> backends,
                                                               std::chrono::milliseconds limit);

}  // namespace pergola
