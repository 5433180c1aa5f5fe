#include <algorithm>
#include <array>
#include <cassert>
#include <condition_variable>
#include <mutex>

#include "backend/communicator.h"
#include "base/error.h"

namespace pergola {

namespace {

/// Where the ranks meet. Each has two staging areas, used by turns: before a rank writes to one again, all others have
/// been at a later meeting, and so are done with reading it.
class Group {
 public:
  Group(int ranks, std::chrono::milliseconds limit) : limit_(limit), staging_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(staging_.size()); }

  /// The staging area of a rank, at least `bytes` large; only its rank may call this.
  std::byte* own_staging(int rank, int turn, std::size_t bytes) {
    std::vector<std::byte>& area = staging_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(turn)];
    if (area.size() < bytes) area.resize(bytes);
    return area.data();
  }

  /// What a rank has staged; after the meeting.
  const std::byte* staged(int rank, int turn) const {
    return staging_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(turn)].data();
  }

  /// Waits until every rank is here.
  void meet(int rank, std::string_view what) {
    std::unique_lock lock(mutex_);
    check_aborted();
    const std::uint64_t meeting = meetings_;
    if (++here_ == ranks()) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    const bool met = changed_.wait_for(lock, limit_, [&] { return meetings_ != meeting || !reason_.empty(); });
    if (meetings_ != meeting) return;
    if (!met) {
      reason_ = fmt::format("rank {} of {} waited {} s at the {} and not all others came", rank, ranks(),
                            std::chrono::duration<double>(limit_).count(), what);
      changed_.notify_all();
    }
    check_aborted();
  }

  void abort(std::string_view sentence) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = sentence;
    changed_.notify_all();
  }

 private:
  void check_aborted() const {
    if (!reason_.empty()) throw Error(reason_);
  }

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  std::uint64_t meetings_ = 0;
  std::string reason_;  ///< why nobody waits any more; empty: all is well
  std::vector<std::array<std::vector<std::byte>, 2>> staging_;
};

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.rows * tensor.columns) * size_of(tensor.dtype);
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank, Backend& backend)
      : group_(std::move(group)), rank_(rank), backend_(backend) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  void all_reduce(const Tensor& x) override {
    assert(x.dtype == DType::f32);
    stage(x);
    group_->meet(rank_, "all-reduce");
    add_up(x.columns, {0, x.rows});
    backend_.upload(x, sum_.data());
    ++turn_;
  }

  void reduce_scatter(const Tensor& x, std::span<const IndexRange> shares, const Tensor& out) override {
    assert(x.dtype == DType::f32 && std::ssize(shares) == ranks());
    stage(x);
    group_->meet(rank_, "reduce-scatter");
    add_up(x.columns, shares[static_cast<std::size_t>(rank_)]);
    backend_.upload(out, sum_.data());
    ++turn_;
  }

  void all_gather(const Tensor& x, std::span<const IndexRange> shares) override {
    assert(std::ssize(shares) == ranks());
    const IndexRange own = shares[static_cast<std::size_t>(rank_)];
    stage(x.slice_columns(own.first, own.count));
    group_->meet(rank_, "all-gather");
    for (int other = 0; other < ranks(); ++other) {
      const IndexRange share = shares[static_cast<std::size_t>(other)];
      if (other != rank_) backend_.upload(x.slice_columns(share.first, share.count), group_->staged(other, turn()));
    }
    ++turn_;
  }

  void broadcast(std::span<const Tensor> tensors, int root) override {
    if (rank_ == root) {
      std::size_t bytes = 0;
      for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
      std::byte* to = group_->own_staging(rank_, turn(), bytes);
      for (const Tensor& tensor : tensors) {
        backend_.download(to, tensor);
        to += bytes_of(tensor);
      }
    }
    group_->meet(rank_, "broadcast");
    if (rank_ != root) {
      const std::byte* from = group_->staged(root, turn());
      for (const Tensor& tensor : tensors) {
        backend_.upload(tensor, from);
        from += bytes_of(tensor);
      }
    }
    ++turn_;
  }

  void abort(std::string_view sentence) override { group_->abort(sentence); }

 private:
  int turn() const { return static_cast<int>(turn_ % 2); }

  void stage(const Tensor& x) { backend_.download(group_->own_staging(rank_, turn(), bytes_of(x)), x); }

  /// sum_ = these rows of what all ranks have staged, in the order of the ranks.
  void add_up(std::int64_t columns, IndexRange rows) {
    const auto count = static_cast<std::size_t>(rows.count * columns);
    const auto first = static_cast<std::size_t>(rows.first * columns);
    if (sum_.size() < count) sum_.resize(count);
    for (int other = 0; other < ranks(); ++other) {
      const float* from = reinterpret_cast<const float*>(group_->staged(other, turn())) + first;
      if (other == 0) {
        std::copy_n(from, count, sum_.data());
      } else {
        for (std::size_t i = 0; i < count; ++i) sum_[i] += from[i];
      }
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Backend& backend_;
  std::uint64_t turn_ = 0;
  std::vector<float> sum_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_communicators(std::span<Backend* const> backends,
                                                               std::chrono::milliseconds limit) {
  const auto group = std::make_shared<Group>(static_cast<int>(backends.size()), limit);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::size_t rank = 0; rank < backends.size(); ++rank)
    communicators.push_back(std::make_unique<LocalCommunicator>(group, static_cast<int>(rank), *backends[rank]));
  return communicators;
}

}  // namespace pergola
