#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "quantize/hessian.h"
#include "quantize/layer_runner.h"
#include "quantize/linear_tasks.h"

namespace pergola {

/// Runs a layer over `states` (which stay as they are) and gives the Hessian of every task's input, by
/// LinearTask::input.
///
/// A routed expert's Hessian weighs each row by the square of the router's weight, since that is how far an error in
/// the expert reaches the layer's output; rows that went elsewhere count a little too, so that no direction is left to
/// chance.
std::map<std::string, Hessian> collect_hessians(Backend& backend, const LayerBlueprint& layer,
                                                const std::vector<LinearTask>& tasks, const HiddenStates& states,
                                                ThreadPool& pool);

}  // namespace pergola
