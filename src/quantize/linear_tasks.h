#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/blueprint.h"
#include "quantize/allocation.h"

namespace pergola {

/// One linear of a layer that will be encoded.
struct LinearTask {
  std::string key;             ///< prefix of its tensors in the result
  LinearView* view = nullptr;  ///< in the blueprint; replaced by the encoded linear when the layer is run again
  std::string input;           ///< the name under which ObservingBackend reports its input
  std::string group;           ///< the AllocationGroup it belongs to
};

/// Every linear of a layer that the format quantises: projections of the mixer, experts, shared expert, dense MLP.
/// Routers and the small gates (shared_expert_gate, in_proj_a, in_proj_b) stay dense.
std::vector<LinearTask> linear_tasks(LayerBlueprint& layer);

/// The groups of linears that share one K over the whole model, with the converter's priorities.
std::vector<AllocationGroup> allocation_groups(ModelBlueprint& model);

}  // namespace pergola
