#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/blueprint.h"
#include "model/shard_plan.h"

namespace pergola {

/// One rank's part of one tensor.
struct TensorSlice {
  enum class Axis : std::uint8_t { outputs, inputs, whole };

  std::string tensor;  ///< name of the linear or the tensor
  Axis axis = Axis::whole;
  std::vector<IndexRange> ranges;  ///< features of the axis, put together in this order; empty for `whole`
};

/// Cuts what one rank holds out of a blueprint. Slices that do not lie in one piece in the files are copied into
/// storage of this object, which views that it gave point into; a cutter for headers copies and reads nothing, and its
/// views are good for footprints only.
class ShardCutter {
 public:
  enum class Use : std::uint8_t { headers, weights };

  /// `file` is named in errors.
  ShardCutter(std::string file, Use use) : file_(std::move(file)), use_(use) {}

  LayerBlueprint layer(const LayerBlueprint& whole, const LayerShards& shards, int rank);
  LinearView outputs(const LinearView& whole, std::span<const IndexRange> ranges);
  LinearView outputs(const LinearView& whole, IndexRange range) { return outputs(whole, {&range, 1}); }
  LinearView inputs(const LinearView& whole, IndexRange range);

  /// Everything that was cut so far.
  const std::vector<TensorSlice>& slices() const { return slices_; }

 private:
  AttentionBlueprint mixer(const AttentionBlueprint& whole, const LayerShards& shards, std::size_t rank);
  DeltaNetBlueprint mixer(const DeltaNetBlueprint& whole, const LayerShards& shards, std::size_t rank);
  MlpBlueprint feed_forward(const MlpBlueprint& whole, const LayerShards& shards, std::size_t rank);
  MoeView feed_forward(const MoeView& whole, const LayerShards& shards, std::size_t rank);
  MoeView::Expert expert(const MoeView::Expert& whole, IndexRange width);
  DenseView elements(const std::string& name, const DenseView& whole, IndexRange range);
  std::span<const std::byte> store(std::size_t size, const std::function<void(std::byte*)>& fill);
  bool is_whole(const TensorSlice& slice, std::int64_t features);

  std::string file_;
  Use use_;
  std::vector<TensorSlice> slices_;
  std::vector<std::vector<std::byte>> storage_;
};

/// The blueprint of one rank, for footprints: no weight is read, and none may be.
ModelBlueprint shard_headers(const ModelBlueprint& model, const ShardPlan& plan, int rank);

/// What the rank holds of every tensor that is cut or kept whole.
std::vector<TensorSlice> slices_of(const ModelBlueprint& model, const ShardPlan& plan, int rank);

}  // namespace pergola
