#pragma once

#include "model/block.h"

namespace pergola {

/// Router, routed and shared experts: one operation of the backend, which keeps its own work space.
class MoeBlock final : public FeedForward {
 public:
  MoeBlock(const MoeView& view, const BlockContext& context)
      : backend_(context.backend), moe_(context.backend.bind_moe(view)) {}

  void forward(const Tensor& x, const Tensor& out) override { backend_.moe(*moe_, x, out); }

 private:
  Backend& backend_;
  std::unique_ptr<Moe> moe_;
};

}  // namespace pergola
