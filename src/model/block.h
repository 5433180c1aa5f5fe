#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/device_parameters.h"
#include "model/scratch.h"

namespace pergola {

/// How much a model may remember.
struct CachePlan {
  std::int64_t pages = 0;      ///< KV pages, shared by all sequences
  std::int64_t page_size = 0;  ///< tokens of one page
  std::int64_t slots = 0;      ///< recurrent states: sequences that can be alive at a time
};

/// What a block is bound with. All of it outlives the block.
struct BlockContext {
  Backend& backend;
  DeviceParameters& parameters;
  Scratch& scratch;
};

/// The part of a layer that mixes tokens: attention or a recurrence, with its projections and its memory of earlier
/// tokens.
class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Creates the memory of earlier tokens, zeroed. Replaces what was there.
  virtual void allocate_cache(const CachePlan& plan) = 0;
  /// Makes the slot's state that of a sequence without tokens.
  virtual void reset_slot(std::int64_t slot) = 0;
  /// Makes the state of slot `to` that of slot `from`, an i32 [1, 1] in device memory; the two differ.
  virtual void copy_slot(const Tensor& from, std::int64_t to) = 0;
  /// out [rows, hidden] f32 from the normed input x [rows, hidden].
  virtual void forward(const Tensor& x, const Batch& batch, const Tensor& out) = 0;
};

/// The part of a layer that works on each token alone.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  /// out [rows, hidden] f32 from the normed input x [rows, hidden].
  virtual void forward(const Tensor& x, const Tensor& out) = 0;
};

}  // namespace pergola
