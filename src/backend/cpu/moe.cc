#include "backend/cpu/moe.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "backend/cpu/memory.h"
#include "backend/cpu/moe_routing.h"
#include "trellis/decode.h"

namespace pergola::cpu {

/// Sizes of the work space of a layer.
struct MoeSizes {
  WorkNeeds router;
  std::int64_t hidden = 0;
  std::int64_t experts = 0;  ///< that the router knows
  std::int64_t here = 0;     ///< experts that are bound
  std::int64_t rows = 0;     ///< of a step
  std::int64_t picks = 0;    ///< of a step
  std::int64_t places = 0;   ///< picks, and the rows of a shared expert
  std::int64_t width = 0;    ///< widest expert

  // Experts that go through the stages together:
  std::int64_t group_rows = 0;
  std::int64_t group_input = 0;  ///< bytes of prepared inputs of gate and up
  std::int64_t group_down = 0;   ///< bytes of prepared inputs of down

  // One expert of a member:
  std::int64_t solo_rows = 0;
  std::int64_t solo_input = 0;
  std::int64_t solo_down = 0;
  std::int64_t scratch = 0;  ///< of multiply_block
};

namespace {

/// Decoding an expert costs about as much as multiplying this many rows with it.
constexpr std::int64_t kDecodeRows = 16;

/// An expert goes to one member if that is at most 1 / kSoloShare of a member's share of the work.
constexpr std::int64_t kSoloShare = 8;

/// Steps of up to this many rows go through the stages in one group.
constexpr std::int64_t kGroupedRows = 16;

void grow(std::int64_t& size, std::int64_t wanted) {
  size = std::max(size, wanted);
}

void add_expert(const KernelTable& table, const PackedExpert& expert, MoeSizes& sizes) {
  const auto input = [&](std::int64_t rows) {
    return max_input_bytes(table, expert.gate, rows) + max_input_bytes(table, expert.up, rows);
  };
  const auto down = [&](std::int64_t rows) { return max_input_bytes(table, expert.down, rows); };
  grow(sizes.width, expert.width());
  grow(sizes.group_input, std::max(input(sizes.rows), sizes.group_rows * input(1)));
  grow(sizes.group_down, std::max(down(sizes.rows), sizes.group_rows * down(1)));
  grow(sizes.solo_input, input(sizes.solo_rows));
  grow(sizes.solo_down, down(sizes.solo_rows));
  for (const PackedLinear* linear : {&expert.gate, &expert.up, &expert.down}) {
    grow(sizes.scratch, block_scratch_bytes(table, *linear, sizes.rows));
  }
}

MoeSizes sizes_of(const KernelTable& table, const MoeView& view, std::int64_t max_rows,
                  std::span<const PackedExpert> experts, const std::optional<PackedExpert>& shared,
                  const WorkNeeds& router) {
  MoeSizes sizes;
  sizes.router = router;
  const std::int64_t top_k = view.top_k;
  sizes.hidden = view.hidden;
  sizes.experts = view.router.out_features;
  sizes.here = static_cast<std::int64_t>(experts.size());
  sizes.rows = max_rows;
  sizes.picks = max_rows * top_k;
  sizes.places = sizes.picks + (shared ? max_rows : 0);
  sizes.group_rows = std::max(max_rows, std::min(max_rows, kGroupedRows) * (top_k + 1));
  sizes.solo_rows =
      std::clamp<std::int64_t>(2 * sizes.picks / sizes.experts, std::min<std::int64_t>(32, max_rows), max_rows);
  for (const PackedExpert& expert : experts) add_expert(table, expert, sizes);
  if (shared) add_expert(table, *shared, sizes);
  return sizes;
}

/// An expert with rows in this step.
struct Active {
  ExpertRun run;
  std::int64_t cost;
  bool solo;
};

struct SharedWork {
  float* logits;          ///< [rows, experts]
  float* shared_gate;     ///< [rows]
  std::int32_t* experts;  ///< [picks]
  float* weights;         ///< [picks]
  ExpertOrder order;
  Active* active;          ///< [experts + 1]
  std::int64_t* boundary;  ///< [experts + 2]: first piece of each active expert in a stage
  float* outputs;          ///< [places, hidden]
  std::byte* input;
  std::byte* down;
  float* projections;  ///< [2, group_rows, width]

  static SharedWork carve(const MoeSizes& s, Carver& carver) {
    carver.take<std::byte>(s.router.shared);
    return {carver.take<float>(s.rows * s.experts),
            carver.take<float>(s.rows),
            carver.take<std::int32_t>(s.picks),
            carver.take<float>(s.picks),
            {carver.take<std::int64_t>(s.experts + 1), carver.take<std::int32_t>(s.picks),
             carver.take<std::int64_t>(s.picks)},
            carver.take<Active>(s.experts + 1),
            carver.take<std::int64_t>(s.experts + 2),
            carver.take<float>(s.places * s.hidden),
            carver.take<std::byte>(s.group_input),
            carver.take<std::byte>(s.group_down),
            carver.take<float>(2 * s.group_rows * s.width)};
  }
};

struct MemberWork {
  std::byte* scratch;
  std::byte* input;
  std::byte* down;
  float* projections;  ///< [2, solo_rows, width]

  static MemberWork carve(const MoeSizes& s, Carver& carver) {
    return {carver.take<std::byte>(std::max(s.scratch, s.router.per_thread)), carver.take<std::byte>(s.solo_input),
            carver.take<std::byte>(s.solo_down), carver.take<float>(2 * s.solo_rows * s.width)};
  }
};

WorkNeeds needs_of(const MoeSizes& sizes) {
  Carver shared, member;
  SharedWork::carve(sizes, shared);
  MemberWork::carve(sizes, member);
  return {shared.used(), member.used()};
}

std::vector<LinearView> router_members(const MoeView& view) {
  std::vector<LinearView> members{view.router};
  if (view.shared_gate) members.push_back(*view.shared_gate);
  return members;
}

}  // namespace

/// One call of CpuMoe::run.
class MoeStep {
 public:
  MoeStep(const Context& context, const KernelTable& table, const CpuMoe& moe, const MoeSizes& sizes, const Tensor& x,
          const Tensor& out)
      : context_(context), table_(table), moe_(moe), sizes_(sizes), x_(x), out_(out) {
    Carver carver(context.work.shared());
    work_ = SharedWork::carve(sizes, carver);
  }

  void run() {
    route();
    order_by_expert(work_.experts, x_.rows, moe_.top_k_, sizes_.experts, work_.order);
    list_active();
    const std::int64_t solo = sort_active();
    context_.pool.parallel_for(solo, [&](std::int64_t i, int member) { run_solo(work_.active[i].run, member); });
    for (std::int64_t first = solo; first < active_;) first = run_group(first);
    add_up();
  }

 private:
  void route() {
    const std::int64_t rows = x_.rows;
    BorrowedMemory logits(work_.logits, 0), gate(work_.shared_gate, 0);
    const Tensor outs[2] = {{&logits, 0, DType::f32, rows, sizes_.experts, sizes_.experts},
                            {&gate, 0, DType::f32, rows, 1, 1}};
    moe_.router_->multiply(table_, context_.pool, context_.work, x_,
                           std::span(outs, static_cast<std::size_t>(moe_.router_->members())));
    const std::int64_t k = moe_.top_k_;
    for_rows(context_.pool, rows, 4 * sizes_.experts,
             [&](std::int64_t row) { route_row(row, work_.experts + row * k, work_.weights + row * k); });
  }

  void route_row(std::int64_t row, std::int32_t* experts, float* weights) const {
    float* logits = work_.logits + row * sizes_.experts;
    switch (moe_.score_) {
      case RouterScore::softmax_top_k:
        return cpu::route_row(logits, sizes_.experts, moe_.top_k_, experts, weights);
      case RouterScore::softmax_all:
        return route_row_softmax_all(logits, sizes_.experts, moe_.top_k_, experts, weights);
      case RouterScore::sigmoid:
        return route_row_sigmoid(moe_.sigmoid_, logits, sizes_.experts, moe_.top_k_, experts, weights);
    }
  }

  void list_active() {
    active_ = 0;
    for (std::int64_t e = 0; e < sizes_.here; ++e) {
      const std::int64_t* const place = work_.order.first + moe_.first_expert_ + e;
      const std::int64_t first = place[0];
      add_active({.expert = &moe_.experts_[static_cast<std::size_t>(e)],
                  .rows = place[1] - first,
                  .row_of = work_.order.rows + first,
                  .out = work_.outputs + first * sizes_.hidden});
    }
    if (moe_.shared_) add_active({.expert = &*moe_.shared_, .rows = x_.rows, .out = shared_output()});
  }

  void add_active(const ExpertRun& run) {
    if (run.rows > 0) work_.active[active_++] = {run, (kDecodeRows + run.rows) * run.expert->width(), false};
  }

  float* shared_output() const { return work_.outputs + x_.rows * moe_.top_k_ * sizes_.hidden; }

  /// Puts the experts that go to single members first, the costliest of them first. Returns their number.
  std::int64_t sort_active() {
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < active_; ++i) total += work_.active[i].cost;
    std::int64_t solo = 0;
    for (std::int64_t i = 0; i < active_; ++i) {
      Active& active = work_.active[i];
      active.solo = active.run.rows <= sizes_.solo_rows && active.cost * kSoloShare * context_.pool.size() <= total;
      solo += active.solo ? 1 : 0;
    }
    if (solo > 0) {
      std::sort(work_.active, work_.active + active_, [](const Active& a, const Active& b) {
        return a.solo != b.solo ? a.solo : a.cost != b.cost ? a.cost > b.cost : a.run.out < b.run.out;
      });
    }
    return solo;
  }

  void run_solo(ExpertRun run, int member) const {
    Carver carver(context_.work.of_thread(member));
    const MemberWork own = MemberWork::carve(sizes_, carver);
    run.gate_input = own.input;
    run.up_input = shares_input(table_, *run.expert, run.rows)
                       ? own.input
                       : own.input + input_bytes(table_, run.expert->gate, run.rows);
    run.down_input = own.down;
    run.gate = own.projections;
    run.up = own.projections + run.rows * run.expert->width();
    for (std::int64_t row = 0; row < run.rows; ++row) run.prepare_inputs(table_, x_.data<float>(), x_.stride, row);
    for (std::int64_t b = 0; b < run.input_blocks(); ++b) run.multiply_inputs(table_, b, own.scratch);
    for (std::int64_t row = 0; row < run.rows; ++row) run.activate(table_, context_.floats, moe_.activation_, row);
    for (std::int64_t b = 0; b < run.down_blocks(); ++b) run.multiply_down(table_, b, own.scratch);
  }

  /// Takes as many experts from `first` on as the work space holds through all stages. Returns the first that is left.
  std::int64_t run_group(std::int64_t first) {
    std::int64_t end = first, rows = 0, input = 0, down = 0, values = 0;
    for (; end < active_; ++end) {
      ExpertRun& run = work_.active[end].run;
      const std::int64_t gate_bytes = input_bytes(table_, run.expert->gate, run.rows);
      const std::int64_t up_bytes =
          shares_input(table_, *run.expert, run.rows) ? 0 : input_bytes(table_, run.expert->up, run.rows);
      const std::int64_t down_bytes = input_bytes(table_, run.expert->down, run.rows);
      if (rows + run.rows > sizes_.group_rows || input + gate_bytes + up_bytes > sizes_.group_input ||
          down + down_bytes > sizes_.group_down) {
        break;
      }
      run.gate_input = work_.input + input;
      run.up_input = run.gate_input + (up_bytes > 0 ? gate_bytes : 0);
      run.down_input = work_.down + down;
      run.gate = work_.projections + values;
      run.up = run.gate + run.rows * run.expert->width();
      rows += run.rows;
      input += gate_bytes + up_bytes;
      down += down_bytes;
      values += 2 * run.rows * run.expert->width();
    }
    assert(end > first);
    run_stages(first, end);
    return end;
  }

  void run_stages(std::int64_t first, std::int64_t end) {
    const auto rows = [](const ExpertRun& run) { return run.rows; };
    const auto scratch = [&](int member) { return context_.work.of_thread(member); };
    stage(first, end, rows, [&](const ExpertRun& run, std::int64_t row, int) {
      run.prepare_inputs(table_, x_.data<float>(), x_.stride, row);
    });
    stage(
        first, end, [](const ExpertRun& run) { return run.input_blocks(); },
        [&](const ExpertRun& run, std::int64_t block, int member) {
          run.multiply_inputs(table_, block, scratch(member));
        });
    stage(first, end, rows, [&](const ExpertRun& run, std::int64_t row, int) {
      run.activate(table_, context_.floats, moe_.activation_, row);
    });
    stage(
        first, end, [](const ExpertRun& run) { return run.down_blocks(); },
        [&](const ExpertRun& run, std::int64_t block, int member) {
          run.multiply_down(table_, block, scratch(member));
        });
  }

  /// Calls work(run, piece, member) for all pieces of the active experts [first, end), spread over the team.
  template <typename Count, typename Work>
  void stage(std::int64_t first, std::int64_t end, const Count& count, const Work& work) {
    std::int64_t* boundary = work_.boundary;
    boundary[0] = 0;
    for (std::int64_t i = first; i < end; ++i)
      boundary[i - first + 1] = boundary[i - first] + count(work_.active[i].run);
    std::int64_t* const last = boundary + (end - first);
    context_.pool.parallel_for(*last, [&](std::int64_t piece, int member) {
      const std::int64_t i = std::upper_bound(boundary, last, piece) - boundary - 1;
      work(work_.active[first + i].run, piece - boundary[i], member);
    });
  }

  void add_up() const {
    const std::int64_t k = moe_.top_k_, hidden = sizes_.hidden;
    for_rows(context_.pool, x_.rows, (k + 1) * hidden / 2, [&](std::int64_t row) {
      float* sum = out_.row<float>(row);
      bool first = true;
      for (std::int64_t pick = row * k; pick < (row + 1) * k; ++pick) {
        if (!moe_.holds(work_.experts[pick])) continue;
        const float* output = work_.outputs + work_.order.place[pick] * hidden;
        if (first) {
          context_.floats.scale(output, work_.weights[pick], sum, hidden);
        } else {
          context_.floats.add_scaled(sum, output, work_.weights[pick], hidden);
        }
        first = false;
      }
      if (first) std::fill_n(sum, hidden, 0.0f);
      if (!moe_.shared_) return;
      const bool gated = moe_.router_->members() > 1;
      const float weight = gated ? 1.0f / (1.0f + std::exp(-work_.shared_gate[row])) : 1.0f;
      context_.floats.add_scaled(sum, shared_output() + row * hidden, weight, hidden);
    });
  }

  const Context& context_;
  const KernelTable& table_;
  const CpuMoe& moe_;
  const MoeSizes& sizes_;
  const Tensor& x_;
  const Tensor& out_;
  SharedWork work_;
  std::int64_t active_ = 0;
};

CpuMoe::CpuMoe(const MoeView& view, const KernelTable& table, std::int64_t max_rows, WeightArena& arena,
               ThreadPool& pool)
    : hidden_(view.hidden),
      top_k_(view.top_k),
      first_expert_(view.first_expert),
      max_rows_(max_rows),
      activation_(view.activation),
      score_(view.score),
      sigmoid_{.groups = view.groups, .top_groups = view.top_groups, .scale = view.routed_scale} {
  assert(top_k_ <= view.router.out_features && view.groups <= kMaxExpertGroups);
  if (view.correction) {
    for (std::int64_t e = 0; e < view.correction->columns; ++e)
      correction_.push_back(dense_element(*view.correction, e));
    sigmoid_.correction = correction_.data();
  }
  const std::int64_t before = arena.bytes();
  router_ = std::make_unique<CpuLinearGroup>(router_members(view), table, max_rows, arena, pool);
  experts_.reserve(view.experts.size());
  for (const MoeView::Expert& expert : view.experts) experts_.push_back(pack_expert(expert, arena, pool));
  if (view.shared) shared_ = pack_expert(*view.shared, arena, pool);
  bytes_ = static_cast<std::size_t>(arena.bytes() - before);
  sizes_ = std::make_unique<MoeSizes>(sizes_of(table, view, max_rows, experts_, shared_, router_->needs()));
  needs_ = needs_of(*sizes_);
}

CpuMoe::~CpuMoe() = default;

void CpuMoe::run(const Context& context, const KernelTable& table, const Tensor& x, const Tensor& out) const {
  assert(x.rows <= max_rows_ && x.columns == hidden_ && out.columns == hidden_);
  if (x.rows > 0) MoeStep(context, table, *this, *sizes_, x, out).run();
}

WorkNeeds moe_needs(const MoeView& view, const KernelTable& table, std::int64_t max_rows) {
  std::vector<PackedExpert> experts;
  for (const MoeView::Expert& expert : view.experts) experts.push_back(expert_shape(expert));
  std::optional<PackedExpert> shared;
  if (view.shared) shared = expert_shape(*view.shared);
  const std::vector<LinearView> router = router_members(view);
  return needs_of(sizes_of(table, view, max_rows, experts, shared, linear_work_needs(table, router, max_rows)));
}

std::int64_t moe_bytes(const MoeView& view) {
  std::int64_t bytes = 0;
  for (const LinearView& member : router_members(view)) bytes += packed_linear_bytes(member);
  const auto add = [&](const MoeView::Expert& expert) {
    for (const LinearView* linear : {&expert.gate, &expert.up, &expert.down}) bytes += packed_linear_bytes(*linear);
  };
  for (const MoeView::Expert& expert : view.experts) add(expert);
  if (view.shared) add(*view.shared);
  return bytes;
}

}  // namespace pergola::cpu
