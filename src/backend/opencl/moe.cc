#include "backend/opencl/moe.h"

#include <array>

#include "base/error.h"
#include "trellis/decode.h"

namespace pergola::opencl {

namespace {

constexpr std::size_t kMostParts = 16;        // y-groups of moe_decode_down
constexpr std::uint32_t kMostPicks = 24;      // of a row: 12 KB of sums in local memory
constexpr std::uint32_t kMostExperts = 2048;  // the grouping counts in local memory

std::vector<const LinearView*> expert_views(const MoeView& moe) {
  std::vector<const LinearView*> views;
  const auto add = [&](const MoeView::Expert& expert) {
    views.insert(views.end(), {&expert.gate, &expert.up, &expert.down});
  };
  for (const MoeView::Expert& expert : moe.experts) add(expert);
  if (moe.shared) add(*moe.shared);
  return views;
}

std::vector<LinearView> router_views(const MoeView& moe) {
  std::vector<LinearView> views{moe.router};
  if (moe.shared_gate) views.push_back(*moe.shared_gate);
  return views;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::uint32_t padded(std::int64_t features) {
  return static_cast<std::uint32_t>((features + 127) / 128 * 128);
}

/// Inputs of the widest expert's down projection, padded to blocks.
std::uint32_t widest_inner(const MoeView& moe) {
  std::int64_t width = moe.shared ? moe.shared->down.in_features : 0;
  for (const MoeView::Expert& expert : moe.experts) width = std::max(width, expert.down.in_features);
  return padded(width);
}

struct WorkLayout {
  MoeWork work;
  std::size_t bytes = 0;

  WorkLayout(std::int64_t rows, std::uint32_t experts, std::uint32_t per_row, std::uint32_t inner,
             std::uint32_t hidden) {
    const std::int64_t picks = rows * per_row;
    work.logit_stride = experts + 1;  // the shared expert's gate behind the router's logits
    work.hidden_stride = inner;
    work.results_stride = hidden;
    work.per_row = per_row;
    const auto take = [&](std::int64_t count, std::size_t size) {
      return std::exchange(bytes, bytes + aligned(static_cast<std::size_t>(count) * size));
    };
    work.logits = take(rows * work.logit_stride, 4);
    work.expert_of = take(picks, 4);
    work.weight_of = take(picks, 4);
    work.order = take(picks, 4);
    work.units = take(picks, 16);
    work.unit_count = take(1, 4);
    work.hidden = take(picks * inner, 4);
    work.results = take(rows > kDecodeRows ? picks * hidden : 0, 4);
  }
};

}  // namespace

std::size_t OpenClMoe::weight_bytes(const MoeView& moe) {
  std::size_t bytes = OpenClLinears::device_bytes(router_views(moe)) + moe.experts.size() * sizeof(float);
  for (const LinearView* view : expert_views(moe)) bytes += device_bytes(*view) + sizeof(Matrix);
  return bytes;
}

std::size_t OpenClMoe::work_bytes(const MoeView& moe, std::int64_t max_rows) {
  const auto per_row = static_cast<std::uint32_t>(moe.top_k + (moe.shared ? 1 : 0));
  return WorkLayout(max_rows, static_cast<std::uint32_t>(moe.experts.size()), per_row, widest_inner(moe),
                    static_cast<std::uint32_t>(moe.hidden))
      .bytes;
}

OpenClMoe::OpenClMoe(Device& device, const MoeView& moe, std::int64_t max_rows, const RowTiles& tiles) : tiles_(tiles) {
  const auto experts = static_cast<std::uint32_t>(moe.experts.size());
  shape_ = {.experts = experts,
            .top_k = static_cast<std::uint32_t>(moe.top_k),
            .shared = moe.shared ? 1u : 0u,
            .score = static_cast<std::uint32_t>(moe.score),
            .groups = static_cast<std::uint32_t>(moe.groups),
            .top_groups = static_cast<std::uint32_t>(moe.top_groups),
            .gate = moe.shared_gate ? 1u : 0u,
            .routed_scale = moe.routed_scale};
  if (shape_.top_k + shape_.shared > kMostPicks || experts > kMostExperts) {
    fail({}, "{}: {} of {} experts for a token are not supported by the OpenCL backend (at most {} of {})", moe.name,
         moe.top_k, experts, kMostPicks, kMostExperts);
  }
  hidden_ = static_cast<std::uint32_t>(moe.hidden);
  inner_ = widest_inner(moe);
  inner_blocks_ = inner_ / 128;
  activation_ = static_cast<int>(moe.activation);
  router_ = std::make_unique<OpenClLinears>(device, router_views(moe), max_rows, tiles);
  experts_ = std::make_unique<BoundMatrices>(device, expert_views(moe), moe.name);

  std::vector<float> correction(experts, 0.0f);
  if (moe.correction) {
    for (std::size_t e = 0; e < correction.size(); ++e)
      correction[e] = dense_element(*moe.correction, static_cast<std::int64_t>(e));
  }
  correction_ = device.allocate(correction.size() * sizeof(float), moe.name);
  check(clEnqueueWriteBuffer(device.queue(), correction_.get(), CL_TRUE, 0, correction.size() * sizeof(float),
                             correction.data(), 0, nullptr, nullptr),
        "copying a router's correction");

  // Matrix units take trellises only.
  if (experts_->kinds() > kTrellisKinds && tiles_.at(1).arithmetic == Arithmetic::matrix)
    tiles_ = RowTiles(Precision::standard, false, device.facts().gpu);
  const auto options = [&](const Variant& variant) {
    return matrix_options(device, experts_->kinds(), variant, wide_experts(variant));
  };
  decode_.gate_up = &device.kernel("moe.cl", "moe_gate_up", options(tiles_.at(0)));
  Variant down = tiles_.at(0);
  down.slab = kDecodeDownSlab;
  decode_.down = &device.kernel("moe_decode.cl", "moe_decode_down", options(down));
  const std::int64_t most_picks = max_rows * (shape_.top_k + shape_.shared);
  if (max_rows > kDecodeRows) {
    for (std::size_t i = 1; i <= expert_tile(tiles_, most_picks, experts + shape_.shared); ++i) {
      grouped_.push_back({&device.kernel("moe.cl", "moe_gate_up", options(tiles_.at(i))),
                          &device.kernel("moe.cl", "moe_down", options(tiles_.at(i)))});
    }
  }
  route_ = &device.kernel("routing.cl", "moe_route", device.base_options());
  group_ = &device.kernel("routing.cl", "moe_group", device.base_options());
  combine_ = &device.kernel("combine.cl", "moe_combine", device.base_options());
  device.reserve_work(work_bytes(moe, max_rows));
}

void OpenClMoe::run(Device& device, const FloatMatrix& x, const FloatMatrix& out) const {
  if (x.rows == 0) return;
  const MoeWork work = WorkLayout(x.rows, shape_.experts, shape_.top_k + shape_.shared, inner_, hidden_).work;
  route(device, x, work);
  if (x.rows <= kDecodeRows)
    run_decode(device, x, out, work);
  else
    run_grouped(device, x, out, work);
}

void OpenClMoe::route(Device& device, const FloatMatrix& x, const MoeWork& work) const {
  const FloatMatrix logits{device.work(), work.logits / 4, work.logit_stride, x.rows, shape_.experts};
  FloatMatrix gate = logits;
  gate.offset += shape_.experts;
  gate.columns = 1;
  const std::array outs{logits, gate};
  router_->run(device, x, std::span(outs).first(static_cast<std::size_t>(router_->members())));
  RoutingShape shape = shape_;
  shape.rows = static_cast<std::uint32_t>(x.rows);
  device.launch(*route_, {{static_cast<std::size_t>(x.rows), 1, 1}, {64, 1, 1}}, shape, device.work(), work,
                correction_.get(), LocalBytes{shape_.experts * sizeof(float)});
}

void OpenClMoe::run_decode(Device& device, const FloatMatrix& x, const FloatMatrix& out, const MoeWork& work) const {
  const auto arenas = experts_->arenas().memories();
  const auto rows = static_cast<std::size_t>(x.rows);
  const std::size_t picks = rows * work.per_row;
  const std::int64_t parts = input_parts(device.facts().lanes(), static_cast<std::int64_t>(picks * inner_blocks_), 1,
                                         experts_->matrices()[0].stored_in, decode_.gate_up->most_work_items);
  device.launch(*decode_.gate_up, {{inner_blocks_, picks, 1}, {64, static_cast<std::size_t>(parts), 1}}, arenas[0],
                arenas[1], arenas[2], arenas[3], experts_->table(), device.work(), work, x.memory, x.offset, x.stride,
                activation_, LocalBytes{scratch_bytes(tiles_.at(0), parts)}, LocalBytes{128 * sizeof(float)});
  const std::size_t groups =
      std::min({std::size_t{work.per_row}, kMostParts, std::max<std::size_t>(decode_.down->most_work_items / 64, 1)});
  device.launch(*decode_.down, {{experts_->matrices()[2].blocks(), rows, 1}, {64, groups, 1}}, arenas[0], arenas[1],
                arenas[2], arenas[3], experts_->table(), device.work(), work, cl_uint{inner_}, out.memory, out.offset,
                out.stride, LocalBytes{groups * kDecodeDownSlab * sizeof(float)},
                LocalBytes{work.per_row * 128 * sizeof(float)});
}

void OpenClMoe::run_grouped(Device& device, const FloatMatrix& x, const FloatMatrix& out, const MoeWork& work) const {
  const auto arenas = experts_->arenas().memories();
  const std::int64_t experts = shape_.experts + shape_.shared;
  const std::int64_t picks = x.rows * work.per_row;
  const std::size_t index = expert_tile(tiles_, picks, experts);
  const Variant& tile = tiles_.at(index);
  const ExpertKernels& kernels = grouped_[index - 1];
  const auto units = static_cast<std::size_t>(most_units(picks, experts, tile.rows));
  const std::size_t counts = static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t);
  device.launch(*group_, {{1, 1, 1}, {std::min<std::size_t>(256, group_->most_work_items), 1, 1}}, device.work(), work,
                static_cast<cl_uint>(picks), static_cast<cl_uint>(experts), static_cast<cl_uint>(tile.rows),
                LocalBytes{counts}, LocalBytes{counts});
  const auto parts_of = [&](const Kernel& kernel, std::uint32_t blocks, std::uint32_t in) {
    return input_parts(device.facts().lanes(), static_cast<std::int64_t>(units) * blocks, tile.rows, in,
                       kernel.most_work_items);
  };
  const std::int64_t gate_parts = parts_of(*kernels.gate_up, inner_blocks_, experts_->matrices()[0].stored_in);
  device.launch(*kernels.gate_up, {{inner_blocks_, units, 1}, {64, static_cast<std::size_t>(gate_parts), 1}}, arenas[0],
                arenas[1], arenas[2], arenas[3], experts_->table(), device.work(), work, x.memory, x.offset, x.stride,
                activation_, LocalBytes{scratch_bytes(tile, gate_parts)},
                LocalBytes{static_cast<std::size_t>(tile.rows) * 128 * sizeof(float)});
  const std::uint32_t blocks = experts_->matrices()[2].blocks();
  const std::int64_t down_parts = parts_of(*kernels.down, blocks, inner_);
  device.launch(*kernels.down, {{blocks, units, 1}, {64, static_cast<std::size_t>(down_parts), 1}}, arenas[0],
                arenas[1], arenas[2], arenas[3], experts_->table(), device.work(), work,
                LocalBytes{scratch_bytes(tile, down_parts)});
  device.launch(*combine_, {{(hidden_ + 63) / 64, static_cast<std::size_t>(x.rows), 1}, {64, 1, 1}}, device.work(),
                work, out.memory, out.offset, out.stride, cl_uint{hidden_});
}

}  // namespace pergola::opencl
