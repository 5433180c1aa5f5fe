#pragma once

#include "format/checkpoint.h"
#include "model/blueprint.h"

namespace pergola {

/// Reads the model of a checkpoint with the reader of its architecture (architectures[0] of config.json). Only headers
/// and the configuration are read. Throws Error for an architecture that is not supported, a
/// configuration that the reader refuses, and a tensor that is missing or misshapen.
ModelBlueprint read_blueprint(const Checkpoint& checkpoint);

/// Names of the supported architectures.
std::vector<std::string> supported_architectures();

}  // namespace pergola
