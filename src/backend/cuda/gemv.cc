#include "backend/cuda/gemv.h"

#include <algorithm>

namespace pergola::cuda {

namespace {

constexpr int kStaticShared = 6 << 10;  ///< descriptions, scales and barriers of the kernel, and what the device keeps

/// Thread blocks of a multiprocessor, as far as registers go.
int most_resident(const GemvWork& work) {
  return work.rows > rows_of(gemv_operand(work.family), 1) ? 2 : 3;
}

int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

/// Most matrices that `local` consecutive blocks of inputs can touch.
int segments_of(const GemvWork& work, int local) {
  if (work.blocks_per_segment >= work.blocks) return 1;
  return std::min(ceil_div(work.blocks, work.blocks_per_segment), ceil_div(local - 1, work.blocks_per_segment) + 1);
}

}  // namespace

int gemv_segments(const GemvWork& work, int cluster) {
  return segments_of(work, ceil_div(work.blocks, cluster));
}

bool gemv_pays(const GemvWork& work) {
  const int blocks = work.jobs * work.blocks;
  if (work.rows > rows_of(gemv_operand(work.family), 1)) return blocks <= 640;
  return blocks <= (work.rows <= 2 ? 2048 : work.family == Family::byte_sum ? 1600 : 1024);
}

GemvPlan fit_gemv(const GemvWork& work, int cluster, int shared_bytes) {
  const Operand operand = gemv_operand(work.family);
  const int blocks_of_rows = work.rows > rows_of(operand, 1) ? 2 : 1;
  const int local = ceil_div(work.blocks, cluster), segments = segments_of(work, local), rounds = ceil_div(local, 2);
  if (work.rows > rows_of(operand, 2) || segments > kGemvMaxSegments || cluster > work.blocks) return {};
  // Inputs, sums, parts of other thread blocks, scales of inputs.
  const int inputs = work.inputs > 0 ? work.inputs : local;
  const int fixed = inputs * 2 * activation_bytes(operand, blocks_of_rows) +
                    (2 * segments + (cluster > 1 ? cluster : 0)) * work.rows * 512 + inputs * work.rows * 8;
  const int slot = 2 * 2048 * work.most_bits, least = std::min(2, rounds) * slot;
  // As many thread blocks share a multiprocessor as leave room for two slots.
  int sharing = most_resident(work);
  while (sharing > 1 && shared_bytes / sharing - kStaticShared - fixed < least) --sharing;
  const int room = shared_bytes / sharing - kStaticShared - fixed;
  if (room < least) return {};
  const int slots = std::min({room / slot, rounds, kGemvMaxSlots});
  return {cluster, slots, fixed + slots * slot};
}

GemvPlan plan_gemv(const GemvWork& work, int multiprocessors, int shared_bytes) {
  GemvPlan best;
  double best_time = 0;
  for (const int cluster : {1, 2, 4, 8}) {
    const GemvPlan plan = fit_gemv(work, cluster, shared_bytes);
    if (plan.slots == 0) continue;
    const int resident = std::max(1, std::min(most_resident(work), shared_bytes / (plan.shared_bytes + kStaticShared)));
    const int thread_blocks = work.jobs * cluster, each = ceil_div(thread_blocks, multiprocessors),
              local = ceil_div(work.blocks, cluster);
    // Clusters do not fill every group of multiprocessors.
    const int capacity = resident * multiprocessors * (cluster > 1 ? 90 : 100) / 100;
    // Microseconds: a multiprocessor decodes a block of 128 x 128 weights in 0.32, one thread block alone in 0.55;
    // every round of thread blocks has its start and its end.
    const double time = std::max(0.32 * each * local, 0.55 * local) + 3.0 * ceil_div(thread_blocks, capacity);
    if (best.slots == 0 || time < best_time) {
      best = plan;
      best_time = time;
    }
  }
  return best;
}

}  // namespace pergola::cuda
