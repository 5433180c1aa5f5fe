#pragma once

#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// qkv|z|b|a projections, the gated delta net with the states of the slots, output projection.
class DeltaNetBlock final : public Mixer {
 public:
  DeltaNetBlock(const DeltaNetBlueprint& blueprint, const BlockContext& context);

  void allocate_cache(const CachePlan& plan) override;
  void reset_slot(std::int64_t slot) override;
  void copy_slot(const Tensor& from, std::int64_t to) override;
  void forward(const Tensor& x, const Batch& batch, const Tensor& out) override;

  /// The intermediate tensors of a step.
  struct Intermediates {
    Tensor qkv;
    Tensor z;
    Tensor b;
    Tensor a;
    Tensor mixed;
  };
  static Intermediates lay_out(const DeltaNetBlueprint& blueprint, const Backend& backend, ScratchLayout& layout);
  /// Bytes of one slot: convolution window and state, both f32.
  static std::size_t slot_bytes(const DeltaNet& layer);

 private:
  Backend& backend_;
  const Scratch& scratch_;
  DeltaNet layer_;
  Intermediates tensors_;
  std::unique_ptr<LinearGroup> projections_;
  std::unique_ptr<LinearGroup> output_;
  std::unique_ptr<Buffer> window_;
  std::unique_ptr<Buffer> state_;
  DeltaNetState states_;
};

}  // namespace pergola
