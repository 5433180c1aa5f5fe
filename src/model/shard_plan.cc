#include "model/shard_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "trellis/hadamard.h"

namespace pergola {

namespace {

using Ranges = std::vector<IndexRange>;

/// Why a model cannot be cut.
struct Objection {
  std::string part;
  std::string reason;
};

/// `total` in runs as equal as they go, of whole units; the last unit may be shorter.
Ranges divide(std::int64_t total, int ranks, std::int64_t unit) {
  const std::int64_t units = (total + unit - 1) / unit;
  Ranges ranges;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t first = std::min(total, units * rank / ranks * unit);
    const std::int64_t end = std::min(total, units * (rank + 1) / ranks * unit);
    ranges.push_back({first, end - first});
  }
  return ranges;
}

/// Heads that one rank gets when each of `ranks` has the same number, or the number each has in common with others.
Ranges divide_or_repeat(std::int64_t total, int ranks) {
  if (total >= ranks) return divide(total, ranks, 1);
  Ranges ranges;
  for (std::int64_t rank = 0; rank < ranks; ++rank) ranges.push_back({rank * total / ranks, 1});
  return ranges;
}

bool is_block(std::int64_t width) {
  return width % kHadamardBlock == 0;
}

bool any_trellis(std::initializer_list<const LinearView*> linears) {
  return std::any_of(linears.begin(), linears.end(), [](const LinearView* view) { return view->trellis() != nullptr; });
}

class Planner {
 public:
  Planner(const ModelBlueprint& model, int ranks) : model_(model), ranks_(ranks) {}

  std::optional<Objection> plan(ExpertPlacement experts) {
    result_ = {.ranks = ranks_, .experts = experts, .layers = {}, .vocabulary = {}};
    objection_.reset();
    for (const LayerBlueprint& layer : model_.layers) {
      result_.layers.emplace_back();
      shards_ = &result_.layers.back();
      std::visit([this](const auto& block) { add(block); }, layer.mixer);
      std::visit([this](const auto& block) { add(block); }, layer.feed_forward);
      if (objection_) return objection_;
    }
    const std::int64_t unit = model_.head.trellis() != nullptr ? kHadamardBlock : 1;
    result_.vocabulary = divide(model_.vocab_size, ranks_, unit);
    if (result_.vocabulary.front().count == 0 || result_.vocabulary.back().count == 0)
      object("the head", fmt::format("it has fewer than {} blocks of {} tokens", ranks_, kHadamardBlock));
    return objection_;
  }

  ShardPlan take() { return std::move(result_); }

 private:
  void object(const std::string& part, std::string reason) {
    if (!objection_) objection_ = Objection{part, std::move(reason)};
  }

  /// Heads that share key/value heads (value heads that share key heads).
  void add_heads(const std::string& name, std::int64_t heads, std::int64_t kv_heads) {
    const bool fits = kv_heads >= ranks_ ? kv_heads % ranks_ == 0 : ranks_ % kv_heads == 0 && heads % ranks_ == 0;
    if (!fits) object(name, fmt::format("it has {} heads over {} key heads", heads, kv_heads));
    shards_->heads = divide(heads, ranks_, 1);
    shards_->kv_heads = divide_or_repeat(kv_heads, ranks_);
  }

  /// A slice of some heads' width must be whole blocks of a trellis.
  void need_blocks(const std::string& name, std::int64_t width, const char* what) {
    if (ranks_ > 1 && !is_block(width))
      object(name, fmt::format("a rank's {} would be {} wide, no whole blocks of {}", what, width, kHadamardBlock));
  }

  void add(const AttentionBlueprint& block) {
    const std::int64_t dim = block.layer.head_dim;
    add_heads(block.name, block.layer.heads, block.layer.kv_heads);
    const std::int64_t q = shards_->heads[0].count * dim;
    if (any_trellis({&block.q})) need_blocks(block.name, q * (block.layer.gated ? 2 : 1), "queries");
    if (any_trellis({&block.k, &block.v})) need_blocks(block.name, shards_->kv_heads[0].count * dim, "keys");
    if (any_trellis({&block.o})) need_blocks(block.name, q, "heads");
  }

  void add(const DeltaNetBlueprint& block) {
    const DeltaNet& layer = block.layer;
    add_heads(block.name, layer.value_heads, layer.key_heads);
    const std::int64_t value = shards_->heads[0].count * layer.value_dim;
    if (any_trellis({&block.qkv})) {
      need_blocks(block.name, shards_->kv_heads[0].count * layer.key_dim, "keys");
      need_blocks(block.name, std::int64_t{layer.key_heads} * layer.key_dim, "first keys");
    }
    if (any_trellis({&block.qkv, &block.z, &block.out})) need_blocks(block.name, value, "values");
    if (any_trellis({&block.a, &block.b})) need_blocks(block.name, shards_->heads[0].count, "gates");
  }

  /// The width between two projections; nothing where it does not divide.
  std::optional<Ranges> divide_width(const LinearView& gate, const LinearView& up, const LinearView& down) const {
    const std::int64_t unit = any_trellis({&gate, &up, &down}) && ranks_ > 1 ? kHadamardBlock : 1;
    const std::int64_t width = gate.out_features;
    if (width % unit != 0 || width / unit % ranks_ != 0) return std::nullopt;
    return divide(width, ranks_, unit);
  }

  Ranges need_width(const std::string& name, const LinearView& gate, const LinearView& up, const LinearView& down) {
    if (auto ranges = divide_width(gate, up, down)) return *ranges;
    object(name, fmt::format("its width is {}", gate.out_features));
    return whole(gate.out_features);
  }

  Ranges whole(std::int64_t count) const { return Ranges(static_cast<std::size_t>(ranks_), IndexRange{0, count}); }

  void add(const MlpBlueprint& block) { shards_->width = need_width(block.name, block.gate, block.up, block.down); }

  void add(const MoeView& moe) {
    const MoeView::Expert& first = moe.experts.front();
    const auto count = static_cast<std::int64_t>(moe.experts.size());
    if (result_.experts == ExpertPlacement::spread) {
      shards_->width = whole(first.gate.out_features);
      shards_->experts = divide(count, ranks_, 1);
      if (count < ranks_) object(moe.name, fmt::format("it has {} experts", count));
    } else {
      shards_->width = need_width(moe.name + ".experts", first.gate, first.up, first.down);
      shards_->experts = whole(count);
    }
    if (!moe.shared) return;
    const auto shared = divide_width(moe.shared->gate, moe.shared->up, moe.shared->down);
    shards_->shared = shared ? *shared : Ranges(static_cast<std::size_t>(ranks_));
    if (!shared) shards_->shared[0] = {0, moe.shared->gate.out_features};
  }

  const ModelBlueprint& model_;
  int ranks_;
  ShardPlan result_;
  LayerShards* shards_ = nullptr;
  std::optional<Objection> objection_;
};

/// A plan, or why there is none.
std::optional<Objection> try_plan(const ModelBlueprint& model, const ShardOptions& options, ShardPlan& plan) {
  Planner planner(model, options.ranks);
  const bool automatic = options.experts == ExpertPlacement::automatic;
  std::optional<Objection> objection = planner.plan(automatic ? ExpertPlacement::split : options.experts);
  if (objection && automatic) objection = planner.plan(ExpertPlacement::spread);
  if (!objection) plan = planner.take();
  return objection;
}

}  // namespace

std::vector<int> legal_ranks(const ModelBlueprint& model, ExpertPlacement experts, int most) {
  std::vector<int> legal;
  for (int ranks = 1; ranks <= most; ++ranks) {
    ShardPlan ignored;
    if (!try_plan(model, {ranks, experts}, ignored)) legal.push_back(ranks);
  }
  return legal;
}

ShardPlan plan_shards(const ModelBlueprint& model, const ShardOptions& options) {
  ShardPlan plan;
  if (const auto objection = try_plan(model, options, plan)) {
    fail({}, "{} cannot be cut for {} ranks: {}; numbers of ranks that this model can be cut for: {}", objection->part,
         options.ranks, objection->reason, fmt::join(legal_ranks(model, options.experts), ", "));
  }
  return plan;
}

}  // namespace pergola
