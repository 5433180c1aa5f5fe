#pragma once

#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/expert.h"
#include "backend/cpu/moe_routing.h"

namespace pergola::cpu {

struct MoeSizes;

/// A mixture-of-experts layer bound to the CPU.
class CpuMoe final : public Moe {
 public:
  /// Repacks all weights into the arena.
  CpuMoe(const MoeView& view, const KernelTable& table, std::int64_t max_rows, WeightArena& arena, ThreadPool& pool);

  ~CpuMoe() override;

  std::size_t bytes() const override { return bytes_; }

  /// Work space that run needs: reserve it at bind time.
  const WorkNeeds& needs() const { return needs_; }

  /// Backend::moe; x and out f32, at most max_rows rows. Allocates nothing. The result does not depend on the team's
  /// size.
  ///
  /// The picks of all rows are ordered by expert, so that each expert decodes its weights once for all of its rows.
  /// Experts that are a small part of the work go to one member each, stage after stage in its caches. The others,
  /// which are all of them in a step of few rows, go through the stages together, cut into blocks of output columns. A
  /// row's experts are added up in the order of its picks, then the shared expert.
  void run(const Context& context, const KernelTable& table, const Tensor& x, const Tensor& out) const;

 private:
  friend class MoeStep;

  /// Whether this expert of the router is bound here.
  bool holds(std::int64_t expert) const {
    return expert >= first_expert_ && expert - first_expert_ < std::ssize(experts_);
  }

  std::int64_t hidden_;
  std::int64_t top_k_;
  std::int64_t first_expert_;
  std::int64_t max_rows_;
  Activation activation_;
  RouterScore score_;
  SigmoidRouting sigmoid_;
  std::vector<float> correction_;
  std::vector<PackedExpert> experts_;
  std::optional<PackedExpert> shared_;
  std::unique_ptr<CpuLinearGroup> router_;  ///< the router, then the shared expert's gate if there is one
  std::unique_ptr<const MoeSizes> sizes_;
  std::size_t bytes_ = 0;
  WorkNeeds needs_;
};

/// What CpuMoe::needs() and bytes() would be, from shapes alone.
WorkNeeds moe_needs(const MoeView& view, const KernelTable& table, std::int64_t max_rows);
std::int64_t moe_bytes(const MoeView& view);

}  // namespace pergola::cpu
