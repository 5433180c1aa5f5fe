#pragma once

#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// q|k|v projections, attention over the cache, output projection. The cache of a layer with a window is a ring a
/// slot: its size does not depend on the context.
class AttentionBlock final : public Mixer {
 public:
  AttentionBlock(const AttentionBlueprint& blueprint, const BlockContext& context);

  void allocate_cache(const CachePlan& plan) override;
  void reset_slot(std::int64_t) override {}
  void copy_slot(const Tensor& from, std::int64_t to) override;
  void forward(const Tensor& x, const Batch& batch, const Tensor& out) override;

  /// The intermediate tensors of a step.
  struct Intermediates {
    Tensor q;
    Tensor k;
    Tensor v;
    Tensor mixed;
  };
  static Intermediates lay_out(const AttentionBlueprint& blueprint, const Backend& backend, ScratchLayout& layout);
  /// Tokens that a layer with a window remembers of a slot: those that the first row of a step still sees, and the
  /// step's; an even number. 0 without a window.
  static std::int64_t ring_rows(const Attention& layer, const Backend& backend);
  /// Bytes of keys and values of one token.
  static std::size_t cache_bytes(const AttentionBlueprint& blueprint, const Backend& backend);

 private:
  Backend& backend_;
  const Scratch& scratch_;
  Attention layer_;
  Intermediates tensors_;
  std::unique_ptr<LinearGroup> qkv_;
  std::unique_ptr<LinearGroup> output_;
  std::unique_ptr<Buffer> keys_;
  std::unique_ptr<Buffer> values_;
  KvLayer cache_;
};

}  // namespace pergola
