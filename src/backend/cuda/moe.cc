#include "backend/cuda/moe.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "backend/cuda/check.h"
#include "backend/cuda/gemv.h"
#include "backend/cuda/packed_layout.h"
#include "backend/cuda/wide_gemm.h"
#include "base/error.h"

namespace pergola::cuda {

namespace {

std::int64_t stored(const LinearView& view, bool in) {
  const TrellisView* trellis = view.trellis();
  if (trellis != nullptr) return in ? trellis->in_features : trellis->out_features;
  return in ? view.in_features : view.out_features;
}

MoeShape shape_of(const MoeView& view) {
  const MoeView::Expert& first = view.experts.front();
  MoeShape shape;
  shape.hidden = view.hidden;
  shape.width = first.gate.out_features;
  shape.experts = static_cast<std::int64_t>(view.experts.size());
  shape.top_k = view.top_k;
  shape.stored_hidden = stored(first.gate, true);
  shape.stored_width = stored(first.gate, false);
  if (view.shared) {
    shape.has_shared = true;
    shape.shared_width = view.shared->gate.out_features;
    shape.stored_shared_width = stored(view.shared->gate, false);
  }
  shape.has_shared_gate = view.shared_gate.has_value();
  return shape;
}

template <typename Visit>
void for_each_matrix(const MoeView& view, Visit&& visit) {
  const auto expert = [&](const MoeView::Expert& e) {
    visit(e.gate);
    visit(e.up);
    visit(e.down);
  };
  for (const MoeView::Expert& e : view.experts) expert(e);
  if (view.shared) expert(*view.shared);
}

/// Tasks that a step can need at most.
std::int64_t most_tasks(const MoeShape& shape, std::int64_t rows, int chunk) {
  const std::int64_t picks = rows * shape.top_k, shared = shape.has_shared ? (rows + chunk - 1) / chunk : 0;
  return std::min(picks, shape.experts + picks / chunk) + shared;
}

/// Rows of the router's weights with the shared expert's gate, padded with zeros for wide products.
std::int64_t router_rows(std::int64_t experts) {
  return (experts + 1 + 7) / 8 * 8;
}

std::size_t aligned(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + 255) / 256 * 256);
}

/// Bytes of a task's prepared inputs: 128 a row and 64 inputs, where kernels for half_pair codebooks have at least
/// eight rows.
std::int64_t slab(std::int64_t k, int chunk) {
  return static_cast<std::int64_t>(aligned(k / kUnitInputs * 128 * std::max(chunk, 8)));
}

/// Work space of a step of `rows` rows, in the order of the members.
struct WorkLayout {
  std::size_t logits, pick_expert, pick_weight, pick_place, place_row, counts, gate, up, down, tables, scales,
      activations;

  WorkLayout(const MoeShape& s, int kinds, std::int64_t rows, int chunk) {
    const std::int64_t picks = rows * s.top_k, tasks = most_tasks(s, rows, chunk);
    logits = aligned(rows * router_rows(s.experts) * 4);
    pick_expert = pick_weight = pick_place = place_row = aligned(picks * 4);
    counts = aligned(kMaxMoeKinds * 4 * 4);
    gate = up = aligned((picks * s.width + rows * s.shared_width) * 4);
    down = aligned((picks + rows) * s.hidden * 4);
    tables = aligned(3 * tasks * kinds * static_cast<std::int64_t>(sizeof(TrellisTask)));
    scales = aligned(2 * tasks * 64 * 4);
    activations =
        static_cast<std::size_t>(std::max(2 * tasks * slab(s.stored_hidden, chunk),
                                          tasks * slab(std::max(s.stored_width, s.stored_shared_width), chunk)));
  }
  std::size_t total() const {
    return logits + pick_expert + pick_weight + pick_place + place_row + counts + gate + up + down + tables + scales +
           activations;
  }
};

/// Most rows that one launch can take for every kind of matrix in the layer.
int most_chunk(const MoeView& view, const LaunchContext& context) {
  const int shared_bytes = context.shared_bytes;
  bool dense = false;
  for_each_matrix(view, [&](const LinearView& linear) { dense |= linear.trellis() == nullptr; });
  if (context.warpgroups && !dense) return kWideRows;
  int most = 32;
  for_each_matrix(view, [&](const LinearView& linear) {
    if (const TrellisView* trellis = linear.trellis())
      most = std::min(most, few_rows_regime(trellis->codebook, trellis->bits, 32, shared_bytes).chunk);
  });
  return most;
}

}  // namespace

std::size_t CudaMoe::weight_bytes(const MoeView& view) {
  std::size_t bytes =
      aligned(router_rows(static_cast<std::int64_t>(view.experts.size())) * view.hidden * 2) +
      aligned((static_cast<std::int64_t>(view.experts.size()) + 1) * static_cast<std::int64_t>(sizeof(ExpertMatrices)));
  for_each_matrix(view, [&](const LinearView& linear) { bytes += device_bytes(linear); });
  return bytes;
}

std::size_t CudaMoe::work_bytes(const MoeView& view, std::int64_t max_rows, const LaunchContext& context) {
  const MoeShape shape = shape_of(view);
  const int limit = most_chunk(view, context);
  std::size_t most = 0;
  // Within one chunk size more rows need more; so look at the largest row count of each.
  for (std::int64_t rows = max_rows; rows > 0;) {
    const int chunk = expert_chunk(rows, shape.top_k, shape.experts, limit);
    most = std::max(most, WorkLayout(shape, kMaxMoeKinds, rows, chunk).total());
    while (rows > 0 && expert_chunk(rows, shape.top_k, shape.experts, limit) == chunk) --rows;
  }
  return most;
}

CudaMoe::CudaMoe(Device& device, const MoeView& view, std::int64_t max_rows)
    : shape_(shape_of(view)),
      activation_(view.activation == Activation::silu ? 0 : 1),
      most_chunk_(most_chunk(view, device.context())) {
  if (shape_.experts > kMaxExperts || shape_.top_k > 32)
    fail({.tensor = view.name}, "{} experts, {} a token, are more than the CUDA backend supports", shape_.experts,
         shape_.top_k);
  std::size_t bytes = 0;
  const int shared_bytes = device.context().shared_bytes;
  for_each_matrix(view, [&](const LinearView& linear) {
    bytes += device_bytes(linear);
    const TrellisView* trellis = linear.trellis();
    if (trellis != nullptr && !experts_fit(trellis->codebook, trellis->bits, std::min(most_chunk_, 32), shared_bytes))
      fail({.tensor = linear.name}, "experts of {} bits need more shared memory than the {} kB of this CUDA device",
           trellis->bits, shared_bytes / 1024);
  });
  arena_ = DeviceMemory(bytes, view.name);
  std::byte* at = arena_.data();
  std::vector<ExpertMatrices> matrices(view.experts.size() + 1);
  for (std::size_t e = 0; e < view.experts.size(); ++e) {
    const MoeView::Expert& expert = view.experts[e];
    if (stored(expert.gate, true) != shape_.stored_hidden || stored(expert.gate, false) != shape_.stored_width ||
        stored(expert.up, false) != shape_.stored_width || stored(expert.down, true) != shape_.stored_width ||
        stored(expert.down, false) != shape_.stored_hidden)
      fail({.tensor = expert.gate.name}, "the experts of {} differ in shape", view.name);
    bind_expert(device, expert, at, matrices[e]);
  }
  if (view.shared) bind_expert(device, *view.shared, at, matrices.back());
  tables_ = DeviceMemory(matrices.size() * sizeof(ExpertMatrices), view.name);
  device.loader().copy(matrices.data(), matrices.size() * sizeof(ExpertMatrices), tables_.data());

  if (view.router.dense() == nullptr || (view.shared_gate && view.shared_gate->dense() == nullptr))
    fail({.tensor = view.router.name}, "a router with a trellis is not supported by the CUDA backend");
  router_memory_ = DeviceMemory(aligned(router_rows(shape_.experts) * shape_.hidden * 2), view.router.name);
  load_linear(device, view.router, router_memory_.data());
  if (view.shared_gate)
    load_linear(device, *view.shared_gate, router_memory_.data() + shape_.experts * shape_.hidden * 2);
  device.work().reserve(work_bytes(view, max_rows, device.context()), "the work space of experts");
}

void CudaMoe::bind_expert(Device& device, const MoeView::Expert& expert, std::byte*& at, ExpertMatrices& matrices) {
  matrices.gate = bind_matrix(device, expert.gate, at, false);
  matrices.up = bind_matrix(device, expert.up, at, false);
  matrices.down = bind_matrix(device, expert.down, at, true);
}

ExpertMatrix CudaMoe::bind_matrix(Device& device, const LinearView& view, std::byte*& at, bool down) {
  const BoundLinear bound = load_linear(device, view, at);
  at += device_bytes(view);
  Kind kind{!bound.kind, bound.kind.value_or(TrellisKind{})};
  auto found = std::find_if(kinds_.begin(), kinds_.end(),
                            [&](const Kind& k) { return k.dense == kind.dense && k.trellis == kind.trellis; });
  if (found == kinds_.end()) {
    if (kinds_.size() == kMaxMoeKinds)
      fail({.tensor = view.name}, "experts of more than {} kinds in one layer are not supported by the CUDA backend",
           kMaxMoeKinds);
    found = kinds_.insert(kinds_.end(), kind);
  }
  (down ? found->down : found->gate_up) = true;
  return {bound.weights, bound.suh, bound.svh, bound.bias, static_cast<std::int32_t>(found - kinds_.begin())};
}

void CudaMoe::run(Device& device, const MatrixView& x, const MatrixView& out) const {
  const int chunk = expert_chunk(x.rows, shape_.top_k, shape_.experts, most_chunk_),
            kinds = static_cast<int>(kinds_.size());
  const WorkLayout layout(shape_, kinds, x.rows, chunk);
  assert(layout.total() <= device.work().bytes());
  const std::int64_t tasks = most_tasks(shape_, x.rows, chunk);
  std::byte* at = device.work().data();
  const auto take = [&](std::size_t bytes) { return std::exchange(at, at + bytes); };
  MoeParams p;
  p.rows = x.rows;
  p.top_k = static_cast<int>(shape_.top_k);
  p.experts = static_cast<int>(shape_.experts);
  p.hidden = static_cast<int>(shape_.hidden);
  p.width = static_cast<int>(shape_.width);
  p.shared_width = static_cast<int>(shape_.shared_width);
  p.kinds = kinds;
  p.chunk = chunk;
  p.has_shared = shape_.has_shared;
  p.has_shared_gate = shape_.has_shared_gate;
  p.x = x;
  p.out = out;
  p.matrices = reinterpret_cast<const ExpertMatrices*>(tables_.data());
  auto* logits = reinterpret_cast<float*>(take(layout.logits));
  p.logits = logits;
  p.logits_stride = static_cast<int>(router_rows(shape_.experts));
  p.pick_expert = reinterpret_cast<std::int32_t*>(take(layout.pick_expert));
  p.pick_weight = reinterpret_cast<float*>(take(layout.pick_weight));
  p.pick_place = reinterpret_cast<std::int32_t*>(take(layout.pick_place));
  p.place_row = reinterpret_cast<std::int32_t*>(take(layout.place_row));
  auto* counts = reinterpret_cast<std::int32_t*>(take(layout.counts));
  p.gate = reinterpret_cast<float*>(take(layout.gate));
  p.up = reinterpret_cast<float*>(take(layout.up));
  p.down = reinterpret_cast<float*>(take(layout.down));
  auto* table = reinterpret_cast<TrellisTask*>(take(layout.tables));
  p.scales = reinterpret_cast<float*>(take(layout.scales));
  p.activations = take(layout.activations);
  for (int kind = 0; kind < kinds; ++kind) {
    p.gate_up[kind] = {table + 3 * tasks * kind, counts + 4 * kind};
    p.downs[kind] = {table + 3 * tasks * kind + 2 * tasks, counts + 4 * kind + 2};
  }
  p.units_hidden = static_cast<int>(shape_.stored_hidden / kUnitInputs);
  p.groups_hidden = static_cast<int>(shape_.stored_hidden / kUnitOutputs);
  p.units_width = static_cast<int>(shape_.stored_width / kUnitInputs);
  p.groups_width = static_cast<int>(shape_.stored_width / kUnitOutputs);
  p.units_shared = static_cast<int>(shape_.stored_shared_width / kUnitInputs);
  p.groups_shared = static_cast<int>(shape_.stored_shared_width / kUnitOutputs);
  const std::int64_t widest = std::max(shape_.stored_width, shape_.stored_shared_width);
  p.gate_up_slab = slab(shape_.stored_hidden, chunk);
  p.down_slab = slab(widest, chunk);

  if (run_gemv(device, p)) return;
  const LaunchContext& context = device.context();
  // The columns of logits are a multiple of eight; those beyond the router's are nobody's.
  run_dense_many(device, x, reinterpret_cast<const __half*>(router_memory_.data()), nullptr,
                 {logits, p.logits_stride, x.rows, p.logits_stride, 1});
  launch_plan(context, p);
  const std::int64_t routed_gate_up = std::int64_t{p.units_hidden} * p.groups_width,
                     routed_down = std::int64_t{p.units_width} * p.groups_hidden;
  const std::int64_t shared_gate_up = std::int64_t{p.units_hidden} * p.groups_shared,
                     shared_down = std::int64_t{p.units_shared} * p.groups_hidden;
  const auto smallest = [&](std::int64_t routed, std::int64_t shared) {
    return shape_.has_shared ? std::min(routed, shared) : routed;
  };
  const auto largest = [&](std::int64_t routed, std::int64_t shared) { return std::max(routed, shared); };
  TaskList list;
  list.max_rows = std::min(x.rows, chunk);
  list.activation = activation_;
  for (int kind = 0; kind < kinds; ++kind) {
    if (!kinds_[static_cast<std::size_t>(kind)].gate_up) continue;
    list.table = p.gate_up[kind].tasks;
    list.table_count = p.gate_up[kind].count;
    list.count = static_cast<int>(2 * tasks);
    list.x_f32 = x.f32;
    run_tasks(device, kinds_[static_cast<std::size_t>(kind)], list, chunk, shape_.stored_hidden,
              std::max(p.width, p.shared_width), smallest(routed_gate_up, shared_gate_up),
              2 * tasks * largest(routed_gate_up, shared_gate_up));
  }
  for (int kind = 0; kind < kinds; ++kind) {
    if (!kinds_[static_cast<std::size_t>(kind)].down) continue;
    list.table = p.downs[kind].tasks;
    list.table_count = p.downs[kind].count;
    list.count = static_cast<int>(tasks);
    list.x_f32 = 1;
    run_tasks(device, kinds_[static_cast<std::size_t>(kind)], list, chunk, widest, p.hidden,
              smallest(routed_down, shared_down), tasks * largest(routed_down, shared_down));
  }
  launch_combine(context, p);
}

bool CudaMoe::run_gemv(Device& device, MoeParams& p) const {
  constexpr int kMostRows = 32;  // every row's experts are decoded for that row alone
  const LaunchContext& context = device.context();
  if (!context.dependent_launch || p.rows > kMostRows) return false;
  GemvGateUp gate_up;
  GemvDown down;
  GemvWork gate_up_work, down_work;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].dense || kinds_[i].trellis.codebook != kinds_.front().trellis.codebook) return false;
    const int bits = kinds_[i].trellis.bits;
    gate_up.bits[i] = down.bits[i] = bits;
    if (kinds_[i].gate_up) gate_up_work.most_bits = std::max(gate_up_work.most_bits, bits);
    if (kinds_[i].down) down_work.most_bits = std::max(down_work.most_bits, bits);
  }
  const Codebook codebook = kinds_.front().trellis.codebook;
  const Family family = family_of(codebook);
  gate_up_work.family = down_work.family = family;
  // A single row's experts differ; with few rows sharing gains less than choosing beforehand costs.
  const bool share = p.rows > 4 && p.rows * p.top_k <= kMostSharedPicks;
  const int chunk = share || p.has_shared != 0 ? std::min(p.rows, rows_of(gemv_operand(family), 1)) : 1;
  gate_up.shared_chunk = chunk;
  gate_up.share = share ? 1 : 0;
  gate_up.jobs = p.rows * p.top_k * 2 * p.groups_width;
  if (p.has_shared != 0) gate_up.jobs += (p.rows + chunk - 1) / chunk * 2 * p.groups_shared;
  gate_up_work.jobs = gate_up.jobs;
  gate_up_work.blocks = gate_up_work.blocks_per_segment = p.units_hidden / 2;
  gate_up_work.rows = chunk;
  down.jobs = down_work.jobs = p.rows * p.groups_hidden;
  down_work.blocks = (p.top_k * p.units_width + p.units_shared) / 2;
  down_work.blocks_per_segment = (p.has_shared != 0 ? std::min(p.units_width, p.units_shared) : p.units_width) / 2;
  down_work.rows = 1;
  const GemvPlan gate_up_plan = plan_gemv(gate_up_work, context.multiprocessors, context.shared_bytes),
                 down_plan = plan_gemv(down_work, context.multiprocessors, context.shared_bytes);
  if (gate_up_plan.slots == 0 || down_plan.slots == 0) return false;
  const auto fill = [&](auto& launch, const GemvWork& work, const GemvPlan& plan) {
    launch.moe = p;
    launch.common.constants = constants_of(codebook);
    launch.common.blocks = work.blocks;
    launch.common.block_bytes = 2048 * work.most_bits;
    launch.common.segments = gemv_segments(work, plan.cluster);
    launch.common.activation = activation_;
  };
  fill(gate_up, gate_up_work, gate_up_plan);
  fill(down, down_work, down_plan);
  launch_route(context, p, reinterpret_cast<const __half*>(router_memory_.data()));
  if (share) launch_pick(context, p);
  launch_gemv(context, gate_up, family, gate_up_plan);
  if (share && run_down_parts(device, p, down_work)) return true;
  launch_gemv(context, down, family, down_plan);
  return true;
}

bool CudaMoe::run_down_parts(Device& device, const MoeParams& params, const GemvWork& whole) const {
  constexpr int kGroups = 4;
  const LaunchContext& context = device.context();
  GemvDownParts down;
  down.moe = params;
  down.moe.pick_place = nullptr;
  down.groups = std::min(kGroups, params.groups_hidden);
  down.shared_chunk = std::min(params.rows, rows_of(gemv_operand(whole.family), 1));
  const int parts = (params.groups_hidden + down.groups - 1) / down.groups,
            shared = params.has_shared != 0 ? (params.rows + down.shared_chunk - 1) / down.shared_chunk : 0,
            inputs = std::max(params.units_width, params.units_shared) / 2;
  down.jobs = (params.rows * params.top_k + shared) * parts;
  GemvWork work = whole;
  work.jobs = down.jobs;
  work.rows = down.shared_chunk;
  work.inputs = work.blocks_per_segment = inputs;
  work.blocks = inputs * down.groups;
  const GemvPlan plan = fit_gemv(work, 1, context.shared_bytes);
  if (plan.slots == 0) return false;
  down.common.constants = constants_of(kinds_.front().trellis.codebook);
  down.common.blocks = work.blocks;
  down.common.block_bytes = 2048 * work.most_bits;
  down.common.local_blocks = inputs;
  down.common.segments = down.groups;
  down.common.activation = activation_;
  for (std::size_t i = 0; i < kinds_.size(); ++i) down.bits[i] = kinds_[i].trellis.bits;
  launch_gemv(context, down, work.family, plan);
  launch_combine(context, down.moe);
  return true;
}

void CudaMoe::run_tasks(Device& device, const Kind& kind, const TaskList& list, int chunk, std::int64_t k, int columns,
                        std::int64_t smallest, std::int64_t most) const {
  const LaunchContext& context = device.context();
  if (kind.dense) return launch_dense_tasks(context, list, columns);
  if (chunk == kWideRows) {
    launch_prepare_wide(context, list, k);
    return launch_wide_gemm(context, list, kind.trellis, (columns + 127) / 128);
  }
  Regime regime = few_rows_regime(kind.trellis.codebook, kind.trellis.bits, chunk, context.shared_bytes);
  assert(regime.chunk >= chunk);
  const int fused = tasks_per_block(context.multiprocessors, most, smallest, list.count);
  if (fused_inputs_pay(list.max_rows, k) &&
      packed_gemm_fits(context.shared_bytes, kind.trellis, regime.operand, regime.blocks, fused, list.max_rows, k)) {
    return launch_packed_gemm(context, list, kind.trellis, regime.operand, regime.blocks, device.scratch(), fused, k);
  }
  launch_prepare(context, list, regime.operand, regime.blocks, k);
  launch_packed_gemm(context, list, kind.trellis, regime.operand, regime.blocks, device.scratch());
}

}  // namespace pergola::cuda
