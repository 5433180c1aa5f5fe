#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/opencl/device.h"
#include "backend/opencl/linear.h"
#include "backend/opencl/matrix.h"
#include "backend/operations.h"

namespace pergola::opencl {

/// routing_t of kernels/routing.cl.
struct RoutingShape {
  std::uint32_t rows = 0, experts = 0, top_k = 0, shared = 0, score = 0, groups = 1, top_groups = 1, gate = 0;
  float routed_scale = 1.0f;
  float reserved = 0.0f;
};

/// Where the intermediate results of a step of `rows` rows lie in the device's work space, in bytes: work_t of
/// kernels/moe_work.h.
struct MoeWork {
  std::uint64_t logits = 0, expert_of = 0, weight_of = 0, order = 0, units = 0, unit_count = 0, hidden = 0, results = 0;
  std::uint32_t logit_stride = 0, hidden_stride = 0, results_stride = 0, per_row = 0;
};

/// A mixture-of-experts layer on the device. Steps of up to kDecodeRows rows run the experts in two launches straight
/// from the router's choice in device memory; longer ones group their picks by expert first. Nothing waits for the
/// host.
class OpenClMoe final : public Moe {
 public:
  OpenClMoe(Device& device, const MoeView& moe, std::int64_t max_rows, const RowTiles& tiles);

  std::size_t bytes() const override { return experts_->bytes() + router_->bytes(); }

  void run(Device& device, const FloatMatrix& x, const FloatMatrix& out) const;

  static std::size_t weight_bytes(const MoeView& moe);
  static std::size_t work_bytes(const MoeView& moe, std::int64_t max_rows);

 private:
  struct ExpertKernels {
    const Kernel* gate_up = nullptr;
    const Kernel* down = nullptr;
  };

  void route(Device& device, const FloatMatrix& x, const MoeWork& work) const;
  void run_decode(Device& device, const FloatMatrix& x, const FloatMatrix& out, const MoeWork& work) const;
  void run_grouped(Device& device, const FloatMatrix& x, const FloatMatrix& out, const MoeWork& work) const;

  RoutingShape shape_;
  std::uint32_t hidden_ = 0;        ///< logical width of the layer's rows
  std::uint32_t inner_ = 0;         ///< stored inputs of the widest expert's down projection
  std::uint32_t inner_blocks_ = 0;  ///< blocks of 128 outputs of the widest gate projection
  int activation_ = 0;
  std::unique_ptr<OpenClLinears> router_;   ///< router, and the shared expert's gate behind it
  std::unique_ptr<BoundMatrices> experts_;  ///< gate, up, down of every expert, the shared one last
  Memory correction_;
  RowTiles tiles_;
  std::vector<ExpertKernels> grouped_;  ///< one a tile but the first
  ExpertKernels decode_;
  const Kernel* route_ = nullptr;
  const Kernel* group_ = nullptr;
  const Kernel* combine_ = nullptr;
};

}  // namespace pergola::opencl
