#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "backend/cpu/work_space.h"
#include "backend/operations.h"
#include "backend/tensor.h"
#include "base/thread_pool.h"

namespace pergola {

/// Linears that share an input, bound to the CPU. Members may differ in K, codebook, sign vectors and density.
class CpuLinearGroup final : public LinearGroup {
 public:
  /// Repacks or copies the members into the arena. `max_rows` is the most rows of one multiply.
  CpuLinearGroup(std::span<const LinearView> members, const KernelTable& table, std::int64_t max_rows,
                 WeightArena& arena, ThreadPool& pool);

  std::int64_t in_features() const override { return members_.front().in_features; }
  std::int64_t members() const override { return static_cast<std::int64_t>(members_.size()); }
  std::int64_t out_features(std::int64_t member) const override { return at(member).out_features; }
  std::size_t bytes() const override { return static_cast<std::size_t>(bytes_); }

  const PackedLinear& at(std::int64_t member) const { return members_[static_cast<std::size_t>(member)]; }

  /// Work space that multiply needs: reserve it at bind time.
  const WorkNeeds& needs() const { return needs_; }

  /// outs[i] = x W_i^T + bias_i, all f32; x [rows, in_features], rows <= max_rows. Allocates nothing. The result does
  /// not depend on the number of threads.
  void multiply(const KernelTable& table, ThreadPool& pool, WorkSpace& work, const Tensor& x,
                std::span<const Tensor> outs) const;

 private:
  /// A run of blocks of one member: what a thread takes at a time.
  struct Item {
    std::int64_t member = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  void prepare_forms(const KernelTable& table, ThreadPool& pool, const Tensor& x, std::byte* forms) const;

  std::vector<PackedLinear> members_;
  std::vector<std::int64_t> form_offsets_;  ///< of each member's form in the shared work space
  std::vector<Item> items_;
  std::int64_t bytes_ = 0;
  std::int64_t max_rows_ = 0;
  WorkNeeds needs_;
};

/// What CpuLinearGroup::needs() would be, from shapes alone.
WorkNeeds linear_work_needs(const KernelTable& table, std::span<const LinearView> members, std::int64_t max_rows);

}  // namespace pergola
