#include "backend/packed_bytes.h"

namespace pergola {

namespace {

std::size_t expert_bytes(const MoeView::Expert& expert) {
  return packed_bytes(expert.gate) + packed_bytes(expert.up) + packed_bytes(expert.down);
}

}  // namespace

std::size_t packed_bytes(const LinearView& linear) {
  const std::size_t bias = linear.bias ? linear.bias->bytes.size() : 0;
  if (const DenseView* dense = linear.dense()) return bias + dense->bytes.size();
  const TrellisView& trellis = *linear.trellis();
  return bias + trellis.trellis.size() + trellis.suh.size() + trellis.svh.size();
}

std::size_t packed_bytes(std::span<const LinearView> members) {
  std::size_t sum = 0;
  for (const LinearView& member : members) sum += packed_bytes(member);
  return sum;
}

std::size_t packed_bytes(const MoeView& moe) {
  std::size_t sum = packed_bytes(moe.router);
  for (const MoeView::Expert& expert : moe.experts) sum += expert_bytes(expert);
  if (moe.shared) sum += expert_bytes(*moe.shared);
  if (moe.shared_gate) sum += packed_bytes(*moe.shared_gate);
  return sum;
}

}  // namespace pergola
