#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/machine_memory.h"
#include "model/model.h"

namespace pergola {

/// What a person asks for; zeros mean the default.
struct MemoryOptions {
  std::int64_t context = 0;  ///< tokens of one sequence; 0: kDefaultContext or the model's limit, whichever is smaller
  std::int64_t max_sequences = 1;
  std::uint64_t kv_cache_bytes = 0;  ///< 0: room for every sequence at full context
  std::int64_t logit_rows = 1;       ///< most rows of a step whose logits are wanted
  std::int64_t checkpoints = 0;      ///< recurrent states kept for the prefix cache, beside those of the sequences
};

inline constexpr std::int64_t kDefaultContext = 8192;
/// Tokens of one page of the KV cache.
inline constexpr std::int64_t kPageSize = 256;

/// One line of a memory plan.
struct MemoryPart {
  std::string name;
  std::uint64_t bytes = 0;
  std::string flag;  ///< what would make it smaller; empty where nothing does
};

/// Everything that running a model takes, computed from headers alone. After start nothing grows.
struct MemoryPlan {
  std::int64_t context = 0;
  std::int64_t max_sequences = 0;
  std::int64_t pages = 0;  ///< of kPageSize tokens
  std::int64_t logit_rows = 0;
  std::int64_t checkpoints = 0;
  std::vector<MemoryPart> parts;
  AvailableMemory available;

  /// Recurrent states in all.
  std::int64_t slots() const { return max_sequences + checkpoints; }
  std::uint64_t total() const;
  bool fits() const { return total() <= available.bytes; }
};

/// `max_rows` is the most rows of one step. Throws Error for a context beyond the model's limit and for a KV cache that
/// cannot hold one sequence of `context` tokens.
MemoryPlan plan_memory(const ModelInfo& model, const ModelPlan& needs, std::int64_t max_rows,
                       const MemoryOptions& options, const AvailableMemory& available);

/// Throws Error when the plan does not fit, naming the largest parts and the flags that would shrink them. Mapped
/// weights count: a model that is larger than memory would be read from disk again for every token.
void require_fit(const MemoryPlan& plan);

}  // namespace pergola
