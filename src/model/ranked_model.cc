#include "model/ranked_model.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <functional>

namespace pergola {

namespace {

/// A rank's copies of the tensors of a step, one after the other in a buffer of i32.
class MirrorLayout {
 public:
  explicit MirrorLayout(Buffer* buffer) : buffer_(buffer) {}

  Tensor like(const Tensor& tensor) {
    const Tensor copy{buffer_, used_, DType::i32, tensor.rows, tensor.columns, tensor.columns};
    used_ += tensor.rows * tensor.columns * static_cast<std::int64_t>(sizeof(std::int32_t));
    return copy;
  }

 private:
  Buffer* buffer_;
  std::int64_t used_ = 0;
};

constexpr std::size_t kTensors = 7;

std::array<Tensor, kTensors> tensors_of(const Batch& batch, const Tensor& logit_rows) {
  return {batch.tokens, batch.positions,  batch.row_sequence, batch.row_start,
          batch.slots,  batch.page_table, logit_rows};
}

void add(std::vector<ModelPlan::Part>& sum, const std::vector<ModelPlan::Part>& more) {
  for (const ModelPlan::Part& part : more) {
    const auto same = [&](const ModelPlan::Part& known) { return known.name == part.name; };
    const auto at = std::find_if(sum.begin(), sum.end(), same);
    if (at == sum.end()) {
      sum.push_back(part);
    } else {
      at->bytes += part.bytes;
    }
  }
}

}  // namespace

ModelPlan RankedModel::plan(const ModelBlueprint& model, const ShardPlan& shards, std::span<Backend* const> backends,
                            bool own_devices) {
  ModelPlan result;
  for (int rank = 0; rank < shards.ranks; ++rank) {
    ModelPlan part = plan_model(shard_headers(model, shards, rank), *backends[static_cast<std::size_t>(rank)]);
    if (own_devices) {
      if (rank == 0 || part.weight_bytes() > result.weight_bytes()) result = std::move(part);
      continue;
    }
    add(result.weights, part.weights);
    add(result.work, part.work);
    result.kv_bytes_per_token += part.kv_bytes_per_token;
    result.state_bytes_per_slot += part.state_bytes_per_slot;
    result.ring_bytes_per_slot += part.ring_bytes_per_slot;
  }
  return result;
}

RankedModel::RankedModel(std::vector<Backend*> backends, std::chrono::milliseconds limit) {
  auto communicators = open_communicators(backends, limit);
  for (std::size_t i = 0; i < backends.size(); ++i)
    ranks_.push_back({backends[i], std::move(communicators[i]), nullptr, {}});
  team_ = std::make_unique<RankTeam>(static_cast<int>(backends.size()), [this](int rank, const std::string& sentence) {
    ranks_[static_cast<std::size_t>(rank)].communicator->abort(sentence);
  });
}

template <typename Work>
void RankedModel::each(const Work& work) {
  const auto in_thread = [&](int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    rank.backend->enter_thread();
    work(rank, index == 0);
  };
  team_->run(std::ref(in_thread));  // a reference needs no memory
}

std::unique_ptr<RankedModel> RankedModel::load(const Checkpoint& checkpoint, std::vector<Backend*> backends,
                                               const ShardPlan& plan, const Progress& progress,
                                               std::chrono::milliseconds limit) {
  assert(std::ssize(backends) == plan.ranks);
  std::unique_ptr<RankedModel> model(new RankedModel(std::move(backends), limit));
  model->each([&](Rank& rank, bool first) {
    const RankShare share{plan, *rank.communicator};
    rank.model = Model::load(checkpoint, *rank.backend, first ? progress : Progress{}, &share);
  });
  return model;
}

void RankedModel::allocate_caches(const CachePlan& plan) {
  each([&](Rank& rank, bool first) {
    rank.model->allocate_caches(plan);
    if (first) return;
    // Tokens, positions, sequences and wanted rows of every row; starts, slots and pages of every sequence.
    const std::int64_t integers =
        4 * rank.backend->max_rows() + 2 * plan.slots + 1 + plan.slots * std::max<std::int64_t>(plan.pages, 1);
    rank.mirror.step =
        rank.backend->allocate(static_cast<std::size_t>(integers) * sizeof(std::int32_t), "the steps of a rank");
  });
}

void RankedModel::reset_slot(std::int64_t slot) {
  each([&](Rank& rank, bool) { rank.model->reset_slot(slot); });
}

void RankedModel::copy_slot(const Tensor& from, std::int64_t to) {
  each([&](Rank& rank, bool first) {
    const Tensor own = first ? from : MirrorLayout(rank.mirror.step.get()).like(from);
    rank.communicator->broadcast({&own, 1}, 0);
    rank.model->copy_slot(own, to);
  });
}

void RankedModel::forward(const Batch& batch, const Tensor& logit_rows, const Tensor& logits) {
  each([&](Rank& rank, bool first) {
    if (!first) return forward_in(rank, batch, logit_rows, logits);
    const auto own = tensors_of(batch, logit_rows);
    rank.communicator->broadcast(std::span(own).first(logits.rows > 0 ? kTensors : kTensors - 1), 0);
    rank.model->forward(batch, logit_rows, logits);
  });
}

/// `batch` and what follows are the first rank's: here only their shapes count.
void RankedModel::forward_in(Rank& rank, const Batch& batch, const Tensor& logit_rows, const Tensor& logits) {
  MirrorLayout layout(rank.mirror.step.get());
  Batch own = batch;
  for (Tensor* tensor : {&own.tokens, &own.positions, &own.row_sequence, &own.row_start, &own.slots, &own.page_table})
    *tensor = layout.like(*tensor);
  const Tensor rows = logits.rows > 0 ? layout.like(logit_rows) : Tensor{};
  const auto tensors = tensors_of(own, rows);
  rank.communicator->broadcast(std::span(tensors).first(logits.rows > 0 ? kTensors : kTensors - 1), 0);
  rank.model->forward(own, rows, logits.rows > 0 ? mirror_logits(rank, logits) : logits);
}

Tensor RankedModel::mirror_logits(Rank& rank, const Tensor& logits) {
  Mirror& mirror = rank.mirror;
  if (mirror.logit_rows < logits.rows) {
    mirror.logits =
        rank.backend->allocate(static_cast<std::size_t>(logits.rows * logits.columns) * sizeof(float), "logits");
    mirror.logit_rows = logits.rows;
  }
  return {mirror.logits.get(), 0, DType::f32, logits.rows, logits.columns, logits.columns};
}

}  // namespace pergola
