#include "model/stored_spans.h"

namespace pergola {

namespace {

void collect(const LinearView& linear, StoredSpans& spans) {
  if (linear.bias) spans.push_back(linear.bias->bytes);
  if (const DenseView* dense = linear.dense()) {
    spans.push_back(dense->bytes);
  } else {
    const TrellisView& trellis = *linear.trellis();
    spans.insert(spans.end(), {trellis.trellis, trellis.suh, trellis.svh});
  }
}

void collect(const MoeView::Expert& expert, StoredSpans& spans) {
  for (const LinearView* linear : {&expert.gate, &expert.up, &expert.down}) collect(*linear, spans);
}

void collect(const AttentionBlueprint& block, StoredSpans& spans) {
  for (const LinearView* linear : {&block.q, &block.k, &block.v, &block.o}) collect(*linear, spans);
}

void collect(const DeltaNetBlueprint& block, StoredSpans& spans) {
  for (const LinearView* linear : {&block.qkv, &block.z, &block.b, &block.a, &block.out}) collect(*linear, spans);
}

void collect(const MlpBlueprint& block, StoredSpans& spans) {
  for (const LinearView* linear : {&block.gate, &block.up, &block.down}) collect(*linear, spans);
}

void collect(const MoeView& moe, StoredSpans& spans) {
  collect(moe.router, spans);
  for (const MoeView::Expert& expert : moe.experts) collect(expert, spans);
  if (moe.shared) collect(*moe.shared, spans);
  if (moe.shared_gate) collect(*moe.shared_gate, spans);
}

}  // namespace

StoredSpans stored_spans(const DenseView& view) {
  return {view.bytes};
}

StoredSpans stored_spans(const LinearView& linear) {
  StoredSpans spans;
  collect(linear, spans);
  return spans;
}

StoredSpans stored_spans(const LayerBlueprint& layer) {
  StoredSpans spans;
  std::visit([&](const auto& block) { collect(block, spans); }, layer.mixer);
  std::visit([&](const auto& block) { collect(block, spans); }, layer.feed_forward);
  return spans;
}

std::uint64_t total_bytes(const StoredSpans& spans) {
  std::uint64_t sum = 0;
  for (const std::span<const std::byte> span : spans) sum += span.size();
  return sum;
}

}  // namespace pergola
