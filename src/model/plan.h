#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/block.h"
#include "model/blueprint.h"

namespace pergola {

/// Memory that a model needs on a device, computed from headers before anything is read.
struct ModelPlan {
  /// A named share, for tables and for naming the largest in a refusal.
  struct Part {
    std::string name;
    std::size_t bytes = 0;
  };

  std::vector<Part> weights;             ///< where the backend reads them: mapped or repacked
  std::vector<Part> work;                ///< activations and the backend's work space, sized by max_rows
  std::size_t kv_bytes_per_token = 0;    ///< attention layers without a window
  std::size_t state_bytes_per_slot = 0;  ///< recurrent layers, and the rings of layers with a window
  std::size_t ring_bytes_per_slot = 0;   ///< of these, the rings

  std::size_t weight_bytes() const;
  std::size_t work_bytes() const;
  std::size_t cache_bytes(const CachePlan& caches) const;
  std::size_t total_bytes(const CachePlan& caches) const { return weight_bytes() + work_bytes() + cache_bytes(caches); }
};

ModelPlan plan_model(const ModelBlueprint& blueprint, const Backend& backend);

}  // namespace pergola
