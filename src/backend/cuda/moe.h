#pragma once

#include <vector>

#include "backend/cuda/gemv.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/moe_kernels.h"

namespace pergola::cuda {

/// Sizes of a mixture-of-experts layer, from its view's shapes.
struct MoeShape {
  std::int64_t hidden = 0, width = 0, shared_width = 0, experts = 0, top_k = 0;
  std::int64_t stored_hidden = 0, stored_width = 0,
               stored_shared_width = 0;  ///< trellis widths; the logical ones where experts are dense
  bool has_shared = false, has_shared_gate = false;
};

/// A mixture-of-experts layer in device memory: one arena of packed experts, and tables by which kernels find them.
class CudaMoe final : public Moe {
 public:
  CudaMoe(Device& device, const MoeView& view, std::int64_t max_rows);

  std::size_t bytes() const override { return arena_.bytes() + tables_.bytes() + router_memory_.bytes(); }

  void run(Device& device, const MatrixView& x, const MatrixView& out) const;

  static std::size_t weight_bytes(const MoeView& view);
  static std::size_t work_bytes(const MoeView& view, std::int64_t max_rows, const LaunchContext& context);

 private:
  /// A launch for every kind of matrix that the layer has; kind `dense` has no trellis.
  struct Kind {
    bool dense = false;
    TrellisKind trellis;
    bool gate_up = false;  ///< whether any gate or up is of the kind
    bool down = false;
  };

  /// A few rows in three launches, where the device and the layer allow it. False: nothing was done.
  bool run_gemv(Device& device, MoeParams& params) const;
  /// down for rows that share experts: a launch, and one for the sums. False: nothing was done.
  bool run_down_parts(Device& device, const MoeParams& params, const GemvWork& whole) const;
  void bind_expert(Device& device, const MoeView::Expert& expert, std::byte*& at, ExpertMatrices& matrices);
  ExpertMatrix bind_matrix(Device& device, const LinearView& view, std::byte*& at, bool down);
  void run_tasks(Device& device, const Kind& kind, const TaskList& list, int chunk, std::int64_t k, int columns,
                 std::int64_t smallest, std::int64_t most) const;

  MoeShape shape_;
  int activation_ = 0;
  int most_chunk_ = 32;
  std::vector<Kind> kinds_;
  DeviceMemory arena_;          ///< experts
  DeviceMemory tables_;         ///< ExpertMatrices [experts + 1]
  DeviceMemory router_memory_;  ///< dense binary16 [experts + shared gate, hidden]
};

}  // namespace pergola::cuda
