#include "model/stored_spans.h"

namespace pergola {

namespace {

using Linears = std::vector<const LinearView*>;

void add(Linears& linears, std::initializer_list<const LinearView*> more) {
  for (const LinearView* linear : more) linears.push_back(linear);
}

void collect(const AttentionBlueprint& block, Linears& linears) {
  add(linears, {&block.q, &block.k, &block.v, &block.o});
}

void collect(const DeltaNetBlueprint& block, Linears& linears) {
  add(linears, {&block.qkv, &block.z, &block.b, &block.a, &block.out});
}

void collect(const MlpBlueprint& block, Linears& linears) {
  add(linears, {&block.gate, &block.up, &block.down});
}

void collect(const MoeView& moe, Linears& linears) {
  linears.push_back(&moe.router);
  for (const MoeView::Expert& expert : moe.experts) add(linears, {&expert.gate, &expert.up, &expert.down});
  if (moe.shared) add(linears, {&moe.shared->gate, &moe.shared->up, &moe.shared->down});
  if (moe.shared_gate) linears.push_back(&*moe.shared_gate);
}

}  // namespace

std::vector<const LinearView*> linears_of(const LayerBlueprint& layer) {
  Linears linears;
  std::visit([&](const auto& block) { collect(block, linears); }, layer.mixer);
  std::visit([&](const auto& block) { collect(block, linears); }, layer.feed_forward);
  return linears;
}

StoredSpans stored_spans(const DenseView& view) {
  return {view.bytes};
}

StoredSpans stored_spans(const LinearView& linear) {
  StoredSpans spans;
  if (linear.bias) spans.push_back(linear.bias->bytes);
  if (const DenseView* dense = linear.dense()) {
    spans.push_back(dense->bytes);
  } else {
    const TrellisView& trellis = *linear.trellis();
    spans.insert(spans.end(), {trellis.trellis, trellis.suh, trellis.svh});
  }
  return spans;
}

StoredSpans stored_spans(const LayerBlueprint& layer) {
  StoredSpans spans;
  for (const LinearView* linear : linears_of(layer)) {
    const StoredSpans more = stored_spans(*linear);
    spans.insert(spans.end(), more.begin(), more.end());
  }
  return spans;
}

std::uint64_t total_bytes(const StoredSpans& spans) {
  std::uint64_t sum = 0;
  for (const std::span<const std::byte> span : spans) sum += span.size();
  return sum;
}

}  // namespace pergola
