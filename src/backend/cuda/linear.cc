#include "backend/cuda/linear.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "backend/cuda/gemv.h"
#include "backend/cuda/moe_kernels.h"
#include "backend/cuda/packed_layout.h"
#include "backend/cuda/reconstruct.h"
#include "base/error.h"
#include "base/half.h"

namespace pergola::cuda {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::int32_t kDenseTaskRows = 16;
constexpr std::int32_t kGemmRows = 17;                      ///< of dense linears that cuBLASLt multiplies
constexpr std::size_t kSliceBytes = std::size_t{64} << 20;  ///< of decoded weights

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Dense values of any float type as binary16.
std::vector<std::uint16_t> to_halves(const DenseView& view, const std::string& name) {
  const std::size_t count = static_cast<std::size_t>(view.rows * view.columns);
  std::vector<std::uint16_t> halves(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (view.dtype == DType::f16) {
      std::memcpy(&halves[i], view.bytes.data() + 2 * i, 2);
      continue;
    }
    float value;
    if (view.dtype == DType::bf16) {
      BFloat16 raw;
      std::memcpy(&raw.bits, view.bytes.data() + 2 * i, 2);
      value = to_float(raw);
    } else {
      std::memcpy(&value, view.bytes.data() + 4 * i, 4);
    }
    if (std::fabs(value) > 65504.0f)
      fail({.tensor = name}, "a dense weight of {} is beyond what the CUDA backend's binary16 can hold", value);
    halves[i] = to_half(value).bits;
  }
  return halves;
}

/// Columns of one slice of decoded weights.
std::int64_t slice_columns(std::int64_t in_features, std::int64_t out_features) {
  const std::int64_t fits = static_cast<std::int64_t>(kSliceBytes / 2) / in_features / kUnitOutputs * kUnitOutputs;
  return std::clamp(fits, kUnitOutputs, out_features);
}

struct ManyRowsLayout {
  std::size_t inputs, weights, sums;
  std::size_t total() const { return inputs + weights + sums; }
};

ManyRowsLayout many_rows_layout(std::int64_t rows, std::int64_t in_features, std::int64_t out_features) {
  const std::int64_t columns = slice_columns(in_features, out_features);
  return {aligned(static_cast<std::size_t>(rows * in_features) * 2),
          aligned(static_cast<std::size_t>(columns * in_features) * 2),
          aligned(static_cast<std::size_t>(rows * columns) * 4)};
}

/// Prepared inputs of one task, its row scales behind them.
std::size_t task_bytes(std::int64_t in_features, const Regime& regime) {
  return aligned(static_cast<std::size_t>(in_features / kUnitInputs) *
                     static_cast<std::size_t>(activation_bytes(regime.operand, regime.blocks)) +
                 2 * static_cast<std::size_t>(regime.chunk) * sizeof(float));
}

}  // namespace

void run_dense_many(Device& device, const MatrixView& x, const __half* weights, const __half* bias,
                    const MatrixView& out) {
  const bool packed = bias == nullptr && x.f32 == 0 && x.stride == x.columns && out.f32 != 0 &&
                      out.stride == out.columns && out.columns % 8 == 0;
  if (x.rows < kGemmRows || !packed) return launch_dense(device.context(), x, weights, bias, out);
  device.gemm().multiply(device.stream(), static_cast<const __half*>(x.data), weights, static_cast<float*>(out.data),
                         x.rows, out.columns, x.columns);
}

std::size_t device_bytes(const LinearView& view) {
  std::size_t bytes = view.bias ? aligned(static_cast<std::size_t>(view.bias->columns * view.bias->rows) * 2) : 0;
  if (const TrellisView* trellis = view.trellis()) {
    return bytes +
           aligned(static_cast<std::size_t>(trellis->in_features * trellis->out_features) *
                   static_cast<std::size_t>(trellis->bits) / 8) +
           aligned(static_cast<std::size_t>(trellis->in_features) * 2) +
           aligned(static_cast<std::size_t>(trellis->out_features) * 2);
  }
  return bytes + aligned(static_cast<std::size_t>(view.in_features * view.out_features) * 2);
}

BoundLinear load_linear(Device& device, const LinearView& view, std::byte* at) {
  WeightLoader& loader = device.loader();
  BoundLinear bound;
  bound.in_features = view.in_features;
  bound.out_features = view.out_features;
  const auto place = [&](const void* from, std::size_t bytes) {
    loader.copy(from, bytes, at);
    return reinterpret_cast<const __half*>(std::exchange(at, at + aligned(bytes)));
  };
  if (const TrellisView* trellis = view.trellis()) {
    bound.kind = TrellisKind{trellis->codebook, trellis->bits};
    bound.stored_in = trellis->in_features;
    bound.stored_out = trellis->out_features;
    bound.weights = at;
    loader.load(*trellis, at);
    at += aligned(static_cast<std::size_t>(trellis->in_features * trellis->out_features) *
                  static_cast<std::size_t>(trellis->bits) / 8);
    bound.suh = place(trellis->suh.data(), trellis->suh.size());
    bound.svh = place(trellis->svh.data(), trellis->svh.size());
  } else {
    if (view.in_features % 8 != 0)
      fail({.tensor = view.name},
           "a dense linear of {} inputs is not supported by the CUDA backend: not a multiple of 8", view.in_features);
    const std::vector<std::uint16_t> halves = to_halves(*view.dense(), view.name);
    bound.weights = reinterpret_cast<const std::byte*>(place(halves.data(), halves.size() * 2));
  }
  if (view.bias) {
    const std::vector<std::uint16_t> halves = to_halves(*view.bias, view.name);
    bound.bias = place(halves.data(), halves.size() * 2);
  }
  return bound;
}

CudaLinears::CudaLinears(Device& device, std::span<const LinearView> members, std::int64_t max_rows) {
  std::size_t bytes = 0;
  for (const LinearView& view : members) bytes += device_bytes(view);
  memory_ = DeviceMemory(bytes, members.front().name);
  std::size_t at = 0;
  for (const LinearView& view : members) {
    linears_.push_back(load_linear(device, view, memory_.data() + at));
    at += device_bytes(view);
    const auto& kind = linears_.back().kind;
    if (kind && std::find(kinds_.begin(), kinds_.end(), *kind) == kinds_.end()) kinds_.push_back(*kind);
  }
  device.work().reserve(work_bytes(members, max_rows, device.context().shared_bytes), "the work space of linears");
}

std::size_t CudaLinears::work_bytes(std::span<const LinearView> members, std::int64_t max_rows, int shared_bytes) {
  const RegimeTable table;
  std::size_t few = 0, many = 0;
  for (const LinearView& view : members) {
    const TrellisView* trellis = view.trellis();
    if (trellis == nullptr) continue;
    std::size_t most = 0;
    for (std::int64_t rows = 1; rows <= std::min(max_rows, table.decode_first_rows - 1); ++rows) {
      const Regime regime = linear_regime(trellis->codebook, trellis->bits, rows, shared_bytes, table);
      if (regime.decode_first) {
        many = std::max(many, many_rows_layout(rows, trellis->in_features, trellis->out_features).total());
      } else {
        most = std::max(most, static_cast<std::size_t>((rows + regime.chunk - 1) / regime.chunk) *
                                  task_bytes(trellis->in_features, regime));
      }
    }
    few += most;
    if (max_rows >= table.decode_first_rows)
      many = std::max(many, many_rows_layout(max_rows, trellis->in_features, trellis->out_features).total());
  }
  return std::max(few, many);
}

void CudaLinears::run(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const {
  assert(outs.size() == linears_.size());
  if (run_gemv(device, x, outs)) return;
  for (const TrellisKind& kind : kinds_) {
    const Regime regime = linear_regime(kind.codebook, kind.bits, x.rows, device.context().shared_bytes, table_);
    if (!regime.decode_first) {
      run_few(device, kind, regime, x, outs);
      continue;
    }
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      if (linears_[i].kind == kind) run_many(device, linears_[i], x, outs[i]);
    }
  }
  run_dense(device, x, outs);
}

bool CudaLinears::run_gemv(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const {
  const LaunchContext& context = device.context();
  if (!context.dependent_launch || kinds_.empty() || linears_.size() > kMaxGemvMembers) return false;
  struct Launch {
    Codebook codebook;
    GemvLinears linears;
    GemvWork work;
    GemvPlan plan;
  };
  std::array<Launch, 3> launches;  // one a codebook
  std::size_t count = 0;
  std::int64_t stored_in = 0;
  const auto launch_of = [&](Codebook codebook) -> Launch& {
    for (std::size_t i = 0; i < count; ++i)
      if (launches[i].codebook == codebook) return launches[i];
    launches[count].codebook = codebook;
    launches[count].work.family = family_of(codebook);
    return launches[count++];
  };
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    const BoundLinear& linear = linears_[i];
    // Dense members go along with the first codebook.
    Launch& launch = launch_of(linear.kind.value_or(kinds_.front()).codebook);
    const std::int64_t outputs = linear.kind ? linear.stored_out : linear.out_features;
    launch.linears.members[launch.linears.count++] = {
        linear.weights, linear.suh,  linear.svh,      linear.bias,         outs[i].data,
        outs[i].stride, outs[i].f32, outs[i].columns, launch.linears.jobs, linear.kind ? linear.kind->bits : 0};
    launch.linears.jobs += static_cast<int>((outputs + kUnitOutputs - 1) / kUnitOutputs);
    if (!linear.kind) continue;
    if (stored_in != 0 && stored_in != linear.stored_in) return false;
    stored_in = linear.stored_in;
    launch.work.most_bits = std::max(launch.work.most_bits, linear.kind->bits);
  }
  for (std::size_t i = 0; i < count; ++i) {
    Launch& launch = launches[i];
    launch.work.jobs = launch.linears.jobs;
    launch.work.blocks = launch.work.blocks_per_segment = static_cast<int>(stored_in / kUnitOutputs);
    launch.work.rows = x.rows;
    if (!gemv_pays(launch.work)) return false;
    launch.plan = plan_gemv(launch.work, context.multiprocessors, context.shared_bytes);
    if (launch.plan.slots == 0) return false;
    launch.linears.x = x;
    launch.linears.common.constants = constants_of(launch.codebook);
    launch.linears.common.blocks = launch.work.blocks;
    launch.linears.common.block_bytes = 2048 * launch.work.most_bits;
    launch.linears.common.segments = 1;
  }
  for (std::size_t i = 0; i < count; ++i)
    launch_gemv(context, launches[i].linears, launches[i].work.family, launches[i].plan);
  return true;
}

void CudaLinears::run_dense(Device& device, const MatrixView& x, std::span<const MatrixView> outs) const {
  // Few rows: all dense members in one launch.
  TaskList list;
  int columns = 0;
  list.max_rows = x.rows;
  list.x_f32 = x.f32;
  const auto flush = [&] {
    if (list.count > 0) launch_dense_tasks(device.context(), list, columns);
    list.count = columns = 0;
  };
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    const BoundLinear& linear = linears_[i];
    if (linear.kind) continue;
    if (x.rows > kDenseTaskRows) {
      run_dense_many(device, x, reinterpret_cast<const __half*>(linear.weights), linear.bias, outs[i]);
      continue;
    }
    if (list.count == kMaxInlineTasks) flush();
    TrellisTask& task = list.tasks[list.count++];
    task = {};
    task.weights = linear.weights;
    task.bias = linear.bias;
    task.x = x.data;
    task.x_stride = x.stride;
    task.x_width = x.columns;
    task.out = outs[i].data;
    task.out_stride = outs[i].stride;
    task.out_f32 = outs[i].f32;
    task.columns = outs[i].columns;
    task.rows = x.rows;
    columns = std::max(columns, task.columns);
  }
  flush();
}

void CudaLinears::run_few(Device& device, TrellisKind kind, const Regime& regime, const MatrixView& x,
                          std::span<const MatrixView> outs) const {
  TaskList list;
  std::byte* work = device.work().data();
  std::int64_t units = 0, smallest = 0, k = 0;
  list.max_rows = std::min(x.rows, regime.chunk);
  list.x_f32 = x.f32;
  const auto flush = [&] {
    if (list.count == 0) return;
    const LaunchContext& context = device.context();
    const int fused = tasks_per_block(context.multiprocessors, units, smallest, list.count);
    if (fused_inputs_pay(list.max_rows, k) &&
        packed_gemm_fits(context.shared_bytes, kind, regime.operand, regime.blocks, fused, list.max_rows, k)) {
      launch_packed_gemm(context, list, kind, regime.operand, regime.blocks, device.scratch(), fused, k);
    } else {
      launch_prepare(context, list, regime.operand, regime.blocks, k);
      launch_packed_gemm(context, list, kind, regime.operand, regime.blocks, device.scratch());
    }
    list.count = 0;
    units = smallest = k = 0;
    work = device.work().data();
  };
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    const BoundLinear& linear = linears_[i];
    if (linear.kind != kind) continue;
    for (std::int32_t first = 0; first < x.rows; first += regime.chunk) {
      if (list.count == kMaxInlineTasks) flush();
      TrellisTask& task = list.tasks[list.count++];
      task = {};
      task.weights = linear.weights;
      task.suh = linear.suh;
      task.svh = linear.svh;
      task.bias = linear.bias;
      task.x = static_cast<const std::byte*>(x.data) + first * x.stride * (x.f32 != 0 ? 4 : 2);
      task.x_stride = x.stride;
      task.x_width = x.columns;
      task.activations = work;
      task.row_scales = reinterpret_cast<float*>(work + linear.stored_in / kUnitInputs *
                                                            activation_bytes(regime.operand, regime.blocks));
      task.out = static_cast<std::byte*>(outs[i].data) + first * outs[i].stride * (outs[i].f32 != 0 ? 4 : 2);
      task.out_stride = outs[i].stride;
      task.out_f32 = outs[i].f32;
      task.columns = outs[i].columns;
      task.rows = std::min(regime.chunk, x.rows - first);
      task.k_units = static_cast<std::int32_t>(linear.stored_in / kUnitInputs);
      task.column_groups = static_cast<std::int32_t>(linear.stored_out / kUnitOutputs);
      task.first_unit = static_cast<std::int32_t>(units);
      work += task_bytes(linear.stored_in, regime);
      const std::int64_t own = std::int64_t{task.k_units} * task.column_groups;
      units += own;
      smallest = smallest == 0 ? own : std::min(smallest, own);
      k = std::max(k, linear.stored_in);
    }
  }
  flush();
}

void CudaLinears::run_many(Device& device, const BoundLinear& linear, const MatrixView& x,
                           const MatrixView& out) const {
  const ManyRowsLayout layout = many_rows_layout(x.rows, linear.stored_in, linear.stored_out);
  std::byte* work = device.work().data();
  auto* inputs = reinterpret_cast<__half*>(work);
  auto* weights = reinterpret_cast<__half*>(work + layout.inputs);
  auto* sums = reinterpret_cast<float*>(work + layout.inputs + layout.weights);
  launch_transform_rows(device.context(), x, linear.suh, inputs, linear.stored_in);
  const std::int64_t width = slice_columns(linear.stored_in, linear.stored_out);
  for (std::int64_t first = 0; first < linear.stored_out; first += width) {
    const std::int64_t columns = std::min(width, linear.stored_out - first);
    launch_reconstruct(device.context(), linear.weights, *linear.kind, linear.stored_in, first / kUnitOutputs,
                       columns / kUnitOutputs, weights);
    device.gemm().multiply(device.stream(), inputs, weights, sums, x.rows, columns, linear.stored_in);
    launch_transform_outputs(device.context(), sums, columns, first, linear.svh, linear.bias, out);
  }
}

}  // namespace pergola::cuda
