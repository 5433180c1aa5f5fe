#include "model/shard_cutter.h"

#include <array>

#include "format/linear_slices.h"

namespace pergola {

namespace {

IndexRange times(IndexRange range, std::int64_t width) {
  return {range.first * width, range.count * width};
}

IndexRange after(std::int64_t start, IndexRange range) {
  return {start + range.first, range.count};
}

}  // namespace

/// Where headers alone are wanted, a span of the right size over nothing.
std::span<const std::byte> ShardCutter::store(std::size_t size, const std::function<void(std::byte*)>& fill) {
  if (use_ == Use::headers) return {static_cast<const std::byte*>(nullptr), size};
  storage_.emplace_back(size);
  fill(storage_.back().data());
  return storage_.back();
}

bool ShardCutter::is_whole(const TensorSlice& slice, std::int64_t features) {
  const bool whole = slice.ranges.size() == 1 && slice.ranges[0] == IndexRange{0, features};
  slices_.push_back(whole ? TensorSlice{slice.tensor, TensorSlice::Axis::whole, {}} : slice);
  return whole;
}

LinearView ShardCutter::outputs(const LinearView& whole, std::span<const IndexRange> ranges) {
  const TensorSlice slice{whole.name, TensorSlice::Axis::outputs, {ranges.begin(), ranges.end()}};
  if (is_whole(slice, whole.out_features)) return whole;
  return select_outputs(whole, ranges, file_,
                        [this](const std::string&, std::size_t size, const auto& fill) { return store(size, fill); });
}

LinearView ShardCutter::inputs(const LinearView& whole, IndexRange range) {
  if (is_whole({whole.name, TensorSlice::Axis::inputs, {range}}, whole.in_features)) return whole;
  return select_inputs(whole, range, file_,
                       [this](const std::string&, std::size_t size, const auto& fill) { return store(size, fill); });
}

DenseView ShardCutter::elements(const std::string& name, const DenseView& whole, IndexRange range) {
  if (is_whole({name, TensorSlice::Axis::outputs, {range}}, whole.columns)) return whole;
  const std::size_t size = size_of(whole.dtype);
  return {
      whole.dtype, 1, range.count,
      whole.bytes.subspan(static_cast<std::size_t>(range.first) * size, static_cast<std::size_t>(range.count) * size)};
}

AttentionBlueprint ShardCutter::mixer(const AttentionBlueprint& whole, const LayerShards& shards, std::size_t rank) {
  const IndexRange heads = shards.heads[rank], kv_heads = shards.kv_heads[rank];
  const std::int64_t dim = whole.layer.head_dim;
  AttentionBlueprint part = whole;
  part.layer.heads = static_cast<int>(heads.count);
  part.layer.kv_heads = static_cast<int>(kv_heads.count);
  part.q = outputs(whole.q, times(heads, whole.layer.gated ? 2 * dim : dim));
  part.k = outputs(whole.k, times(kv_heads, dim));
  part.v = outputs(whole.v, times(kv_heads, dim));
  part.o = inputs(whole.o, times(heads, dim));
  if (whole.sinks) part.sinks = elements(whole.name + ".sinks", *whole.sinks, heads);
  return part;
}

DeltaNetBlueprint ShardCutter::mixer(const DeltaNetBlueprint& whole, const LayerShards& shards, std::size_t rank) {
  const IndexRange values = shards.heads[rank], keys = shards.kv_heads[rank];
  const DeltaNet& layer = whole.layer;
  const std::int64_t key_width = std::int64_t{layer.key_heads} * layer.key_dim;
  const std::array channels = {times(keys, layer.key_dim), after(key_width, times(keys, layer.key_dim)),
                               after(2 * key_width, times(values, layer.value_dim))};
  DeltaNetBlueprint part = whole;
  part.layer.key_heads = static_cast<int>(keys.count);
  part.layer.value_heads = static_cast<int>(values.count);
  part.qkv = outputs(whole.qkv, channels);
  part.z = outputs(whole.z, times(values, layer.value_dim));
  part.b = outputs(whole.b, values);
  part.a = outputs(whole.a, values);
  part.out = inputs(whole.out, times(values, layer.value_dim));
  const LinearView taps{
      whole.name + ".conv1d", whole.conv_weight.columns, whole.conv_weight.rows, whole.conv_weight, {}};
  part.conv_weight = *outputs(taps, channels).dense();
  part.a_log = elements(whole.name + ".A_log", whole.a_log, values);
  part.dt_bias = elements(whole.name + ".dt_bias", whole.dt_bias, values);
  return part;
}

MoeView::Expert ShardCutter::expert(const MoeView::Expert& whole, IndexRange width) {
  return {outputs(whole.gate, width), outputs(whole.up, width), inputs(whole.down, width)};
}

MlpBlueprint ShardCutter::feed_forward(const MlpBlueprint& whole, const LayerShards& shards, std::size_t rank) {
  MoeView::Expert part = expert({whole.gate, whole.up, whole.down}, shards.width[rank]);
  return {whole.name, whole.activation, std::move(part.gate), std::move(part.up), std::move(part.down)};
}

MoeView ShardCutter::feed_forward(const MoeView& whole, const LayerShards& shards, std::size_t rank) {
  const IndexRange held = shards.experts[rank];
  MoeView part = whole;
  part.experts.clear();
  part.first_expert = held.first;
  for (std::int64_t e = 0; e < held.count; ++e)
    part.experts.push_back(expert(whole.experts[static_cast<std::size_t>(held.first + e)], shards.width[rank]));
  if (!whole.shared) return part;
  if (shards.shared[rank].count > 0) {
    part.shared = expert(*whole.shared, shards.shared[rank]);
  } else {
    part.shared.reset();
    part.shared_gate.reset();
  }
  return part;
}

LayerBlueprint ShardCutter::layer(const LayerBlueprint& whole, const LayerShards& shards, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  LayerBlueprint part = whole;
  std::visit([&](const auto& block) { part.mixer = mixer(block, shards, index); }, whole.mixer);
  std::visit([&](const auto& block) { part.feed_forward = feed_forward(block, shards, index); }, whole.feed_forward);
  return part;
}

namespace {

ModelBlueprint cut(const ModelBlueprint& model, const ShardPlan& plan, int rank, ShardCutter& cutter) {
  ModelBlueprint part = model;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    part.layers[i] = cutter.layer(model.layers[i], plan.layers[i], rank);
  part.head = cutter.outputs(model.head, plan.vocabulary[static_cast<std::size_t>(rank)]);
  return part;
}

}  // namespace

ModelBlueprint shard_headers(const ModelBlueprint& model, const ShardPlan& plan, int rank) {
  ShardCutter cutter({}, ShardCutter::Use::headers);
  return cut(model, plan, rank, cutter);
}

std::vector<TensorSlice> slices_of(const ModelBlueprint& model, const ShardPlan& plan, int rank) {
  ShardCutter cutter({}, ShardCutter::Use::headers);
  cut(model, plan, rank, cutter);
  return cutter.slices();
}

}  // namespace pergola
