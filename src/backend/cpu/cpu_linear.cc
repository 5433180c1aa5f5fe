#include "backend/cpu/cpu_linear.h"

#include <algorithm>
#include <cassert>

namespace pergola {
namespace {

/// Below this many input values a fork costs more than it saves.
constexpr std::int64_t kSerialValues = 16384;

/// Items a thread, so that threads of unequal speed finish together; fewer blocks an item read more of memory in order.
constexpr std::int64_t kItemsPerThread = 8;

}  // namespace

CpuLinearGroup::CpuLinearGroup(std::span<const LinearView> members, const KernelTable& table, std::int64_t max_rows,
                               WeightArena& arena, ThreadPool& pool)
    : max_rows_(max_rows) {
  assert(!members.empty());
  const std::int64_t before = arena.bytes();
  std::int64_t blocks = 0;
  for (const LinearView& view : members) {
    assert(view.in_features == members.front().in_features);
    form_offsets_.push_back(needs_.shared);
    members_.push_back(pack_linear(view, arena, pool));
    needs_.shared += max_form_bytes(table, members_.back(), max_rows);
    needs_.per_thread = std::max(needs_.per_thread, block_scratch_bytes(table, members_.back(), max_rows));
    blocks += members_.back().blocks();
  }
  bytes_ = arena.bytes() - before;
  const std::int64_t run = std::max<std::int64_t>(1, blocks / (kItemsPerThread * pool.size()));
  for (std::int64_t member = 0; member < static_cast<std::int64_t>(members_.size()); ++member) {
    const std::int64_t count = at(member).blocks();
    for (std::int64_t first = 0; first < count; first += run)
      items_.push_back({member, first, std::min(run, count - first)});
  }
}

void CpuLinearGroup::prepare_forms(const KernelTable& table, ThreadPool& pool, const Tensor& x,
                                   std::byte* forms) const {
  const std::int64_t total = members() * x.rows;
  const auto prepare = [&](std::int64_t index, int) {
    const std::int64_t member = index / x.rows;
    const std::int64_t row = index % x.rows;
    prepare_row(table, at(member), x.row<float>(row), row, x.rows,
                forms + form_offsets_[static_cast<std::size_t>(member)]);
  };
  if (total * in_features() > kSerialValues) return pool.parallel_for(total, prepare);
  for (std::int64_t index = 0; index < total; ++index) prepare(index, 0);
}

void CpuLinearGroup::multiply(const KernelTable& table, ThreadPool& pool, WorkSpace& work, const Tensor& x,
                              std::span<const Tensor> outs) const {
  assert(x.columns == in_features() && x.rows <= max_rows_ && static_cast<std::int64_t>(outs.size()) == members());
  assert(work.size().shared >= needs_.shared && work.size().per_thread >= needs_.per_thread);
  if (x.rows == 0) return;
  std::byte* forms = work.shared();
  prepare_forms(table, pool, x, forms);
  pool.parallel_for(static_cast<std::int64_t>(items_.size()), [&](std::int64_t index, int thread) {
    const Item& item = items_[static_cast<std::size_t>(index)];
    const PackedLinear& linear = at(item.member);
    const Tensor& out = outs[static_cast<std::size_t>(item.member)];
    assert(out.rows == x.rows && out.columns == linear.out_features);
    const LinearInput input{x.data<float>(), x.stride, forms + form_offsets_[static_cast<std::size_t>(item.member)],
                            x.rows};
    for (std::int64_t block = item.first; block < item.first + item.count; ++block) {
      multiply_block(table, linear, block, input, out.data<float>() + block * linear.block_columns(), out.stride,
                     work.of_thread(thread));
    }
  });
}

WorkNeeds linear_work_needs(const KernelTable& table, std::span<const LinearView> members, std::int64_t max_rows) {
  WorkNeeds needs;
  for (const LinearView& view : members) {
    const PackedLinear shape = packed_shape(view);
    needs.shared += max_form_bytes(table, shape, max_rows);
    needs.per_thread = std::max(needs.per_thread, block_scratch_bytes(table, shape, max_rows));
  }
  return needs;
}

}  // namespace pergola
