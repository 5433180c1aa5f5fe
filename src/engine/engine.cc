#include "engine/engine.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/architectures.h"
#include "model/ranked_model.h"

namespace pergola {
namespace {

StepLimits limits_of(const OpenedModel& opened) {
  return {.rows = opened.backend->max_rows(),
          .sequences = opened.memory.max_sequences,
          .pages_per_sequence = (opened.memory.context + kPageSize - 1) / kPageSize,
          .logit_rows = opened.memory.logit_rows};
}

std::unique_ptr<LanguageModel> load_checked(const OpenedModel& opened, const Progress& progress) {
  require_fit(opened.memory);
  if (!opened.shards) return Model::load(opened.checkpoint, *opened.backend, progress);
  std::vector<Backend*> backends{opened.backend.get()};
  for (const auto& backend : opened.other_ranks) backends.push_back(backend.get());
  return RankedModel::load(opened.checkpoint, std::move(backends), *opened.shards, progress);
}

/// What the plan may take: a device's own memory, at most --gpu-memory-bytes of it, or the machine's. Of that, a device
/// beside the processor (an integrated GPU) leaves --host-reserve-bytes to the rest of the machine.
AvailableMemory memory_of(const Backend& backend, const EngineOptions& options) {
  const DeviceInfo& device = backend.info();
  if (device.memory_bytes > 0 && !device.shares_host_memory) {
    if (options.gpu_memory_bytes > 0 && options.gpu_memory_bytes < device.memory_bytes)
      return {options.gpu_memory_bytes, "--gpu-memory-bytes"};
    return {device.memory_bytes, device.name};
  }
  AvailableMemory available = available_memory();
  if (device.backend != "opencl") return available;
  available.bytes -= std::min(available.bytes, options.host_reserve_bytes);
  if (options.host_reserve_bytes > 0) available.limited_by += " less --host-reserve-bytes";
  return available;
}

ModelInfo info_of(const ModelBlueprint& blueprint) {
  return {.architecture = blueprint.architecture,
          .vocab_size = blueprint.vocab_size,
          .hidden_size = blueprint.hidden_size,
          .layers = static_cast<std::int64_t>(blueprint.layers.size()),
          .max_positions = blueprint.max_positions,
          .long_rope_left_out = blueprint.long_rope_left_out};
}

/// Threads are divided among the ranks.
BackendOptions device_of_rank(const EngineOptions& options, int rank) {
  BackendOptions device = options.device;
  if (!options.gpus.empty()) device.device = options.gpus[static_cast<std::size_t>(rank)];
  if (options.shards.ranks == 1) return device;
  const int threads = device.threads > 0 ? device.threads : ThreadPool::available_processors();
  device.threads = std::max(1, threads / options.shards.ranks);
  return device;
}

bool have_own_devices(const EngineOptions& options) {
  std::vector<int> gpus = options.gpus;
  std::sort(gpus.begin(), gpus.end());
  return !gpus.empty() && std::adjacent_find(gpus.begin(), gpus.end()) == gpus.end();
}

}  // namespace

OpenedModel open_model(Checkpoint checkpoint, const EngineOptions& options) {
  OpenedModel opened{.checkpoint = std::move(checkpoint), .record_steps = options.record_steps};
  const int ranks = options.shards.ranks;
  opened.backend = open_backend(options.backend, device_of_rank(options, 0));
  const ModelBlueprint blueprint = read_blueprint(opened.checkpoint);
  opened.info = info_of(blueprint);
  if (ranks == 1) {
    opened.plan = plan_model(blueprint, *opened.backend);
  } else {
    opened.shards = plan_shards(blueprint, options.shards);
    opened.record_steps = false;  // a recording holds the work of one rank only
    std::vector<Backend*> backends{opened.backend.get()};
    for (int rank = 1; rank < ranks; ++rank) {
      opened.other_ranks.push_back(open_backend(options.backend, device_of_rank(options, rank)));
      backends.push_back(opened.other_ranks.back().get());
    }
    opened.plan = RankedModel::plan(blueprint, *opened.shards, backends, have_own_devices(options));
  }
  opened.memory = plan_memory(opened.info, opened.plan, opened.backend->max_rows(), options.memory,
                              memory_of(*opened.backend, options));
  return opened;
}

Engine::Engine(OpenedModel opened, const Progress& progress)
    : opened_(std::move(opened)),
      limits_(limits_of(opened_)),
      model_(load_checked(opened_, progress)),
      pool_{IndexPool(opened_.memory.pages), IndexPool(opened_.memory.max_sequences), kPageSize},
      builder_(*opened_.backend, limits_) {
  model_->allocate_caches({.pages = opened_.memory.pages, .page_size = kPageSize, .slots = opened_.memory.slots()});
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(opened_.memory.slots()));
  std::iota(numbers.begin(), numbers.end(), 0);
  slot_numbers_ = opened_.backend->allocate(numbers.size() * sizeof(std::int32_t), "slot numbers");
  const auto count = static_cast<std::int64_t>(numbers.size());
  opened_.backend->upload({slot_numbers_.get(), 0, DType::i32, 1, count, count}, numbers.data());
  const std::int64_t vocab = info().vocab_size;
  logits_buffer_ =
      opened_.backend->allocate(static_cast<std::size_t>(limits_.logit_rows * vocab) * sizeof(float), "logits");
  logits_ = {.buffer = logits_buffer_.get(), .rows = limits_.logit_rows, .columns = vocab, .stride = vocab};
  if (opened_.record_steps) recordings_ = StepRecordings(*opened_.backend, *model_, builder_, limits_, logits_);
}

Sequence Engine::start() {
  Sequence sequence(pool_, opened_.memory.context);
  model_->reset_slot(sequence.slot());
  return sequence;
}

void Engine::copy_state(std::int32_t from, std::int32_t to) {
  assert(from != to && std::max(from, to) < opened_.memory.slots());
  const auto offset = static_cast<std::int64_t>(sizeof(std::int32_t)) * from;
  model_->copy_slot({slot_numbers_.get(), offset, DType::i32, 1, 1, 1}, to);
}

void Engine::check_ids(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= info().vocab_size)
      fail({}, "token {} is outside the model's vocabulary of {}", id, info().vocab_size);
  }
}

void Engine::step(std::span<const StepPart> parts) {
  std::int64_t logit_rows = 0;
  for (const StepPart& part : parts) {
    if (!part.sequence->reserve(part.sequence->computed() + part.rows)) {
      fail({.field = "--kv-cache-bytes"}, "the KV cache is full: all {} pages of {} tokens are in use",
           pool_.pages.size(), pool_.page_size);
    }
    logit_rows += part.logit_rows;
  }
  builder_.build(parts);
  if (RecordedStep* recorded = recordings_.find(builder_.batch(), logit_rows)) {
    recorded->replay();
  } else {
    model_->forward(builder_.batch(), builder_.logit_rows(), logits_.slice_rows(0, logit_rows));
  }
  for (const StepPart& part : parts) part.sequence->advance(part.rows);
}

void Engine::prefill(Sequence& sequence, const std::atomic<bool>& cancelled) {
  while (sequence.pending() > 0 && !cancelled.load(std::memory_order_relaxed)) {
    const std::int64_t rows = std::min(sequence.pending(), max_rows());
    const StepPart part{&sequence, rows, rows == sequence.pending() ? 1 : 0};
    step({&part, 1});
  }
}

void Engine::read_logits(std::int64_t row, std::span<float> to) const {
  assert(static_cast<std::int64_t>(to.size()) == logits_.columns);
  opened_.backend->download(to.data(), logits_.slice_rows(row, 1));
}

}  // namespace pergola
