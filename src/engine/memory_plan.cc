#include "engine/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "engine/batch_builder.h"

namespace pergola {
namespace {

std::int64_t chosen_context(const ModelInfo& model, std::int64_t wanted) {
  const std::int64_t limit = model.max_positions;
  if (wanted > limit && model.long_rope_left_out) {
    fail({.field = "--context"},
         "{} tokens are more than {}, beyond which this model's LongRoPE changes all positions; that is not supported",
         wanted, limit);
  }
  if (wanted > limit)
    fail({.field = "--context"}, "{} tokens are more than the model's own limit of {}", wanted, limit);
  return wanted > 0 ? wanted : std::min(kDefaultContext, limit);
}

std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageSize - 1) / kPageSize;
}

/// Pages of the pool: enough for every sequence, or what the given bytes hold.
std::int64_t chosen_pages(std::size_t bytes_per_token, const MemoryOptions& options, std::int64_t context) {
  const std::int64_t wanted = pages_for(context) * options.max_sequences;
  const std::uint64_t page_bytes = bytes_per_token * static_cast<std::uint64_t>(kPageSize);
  if (options.kv_cache_bytes == 0 || page_bytes == 0) return wanted;
  const auto pages = static_cast<std::int64_t>(options.kv_cache_bytes / page_bytes);
  if (pages < pages_for(context)) {
    fail({.field = "--kv-cache-bytes"}, "{} hold {} tokens, fewer than one sequence of {} (see --context)",
         human_bytes(static_cast<double>(options.kv_cache_bytes)), pages * kPageSize, context);
  }
  return std::min(pages, wanted);
}

}  // namespace

std::uint64_t MemoryPlan::total() const {
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const MemoryPart& part) { return sum + part.bytes; });
}

MemoryPlan plan_memory(const ModelInfo& model, const ModelPlan& needs, std::int64_t max_rows,
                       const MemoryOptions& options, const AvailableMemory& available) {
  MemoryPlan plan;
  plan.context = chosen_context(model, options.context);
  plan.max_sequences = options.max_sequences;
  plan.pages = chosen_pages(needs.kv_bytes_per_token, options, plan.context);
  plan.logit_rows = options.logit_rows;
  plan.checkpoints = needs.state_bytes_per_slot > 0 ? options.checkpoints : 0;
  plan.available = available;

  const StepLimits limits{.rows = max_rows,
                          .sequences = plan.max_sequences,
                          .pages_per_sequence = pages_for(plan.context),
                          .logit_rows = plan.logit_rows};
  const std::uint64_t kv = static_cast<std::uint64_t>(plan.pages * kPageSize) * needs.kv_bytes_per_token;
  const std::uint64_t state = static_cast<std::uint64_t>(plan.slots()) * needs.state_bytes_per_slot;
  const std::uint64_t logits = static_cast<std::uint64_t>(plan.logit_rows * model.vocab_size) * sizeof(float);
  const std::uint64_t slot_numbers = static_cast<std::uint64_t>(plan.slots()) * sizeof(std::int32_t);
  plan.parts = {
      {"weights", needs.weight_bytes(), ""},
      {"KV cache", kv, "--context, --max-sequences or --kv-cache-bytes"},
      {"states and windows", state, plan.checkpoints > 0 ? "--max-sequences or --checkpoints" : "--max-sequences"},
      {"work space", needs.work_bytes() + BatchBuilder::device_bytes(limits) + slot_numbers, "--max-rows"},
      {"logits", logits, "--max-rows"}};
  return plan;
}

void require_fit(const MemoryPlan& plan) {
  if (plan.fits()) return;
  std::vector<MemoryPart> largest = plan.parts;
  std::sort(largest.begin(), largest.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  std::string named;
  for (std::size_t i = 0; i < 2; ++i) {
    const MemoryPart& part = largest[i];
    named += i == 0 ? "" : " and ";
    named += part.name + " with " + human_bytes(static_cast<double>(part.bytes));
    if (!part.flag.empty()) named += " (less with a smaller " + part.flag + ")";
  }
  fail({}, "the model needs {} but {} has {} left; the largest parts are {}",
       human_bytes(static_cast<double>(plan.total())), plan.available.limited_by,
       human_bytes(static_cast<double>(plan.available.bytes)), named);
}

}  // namespace pergola
