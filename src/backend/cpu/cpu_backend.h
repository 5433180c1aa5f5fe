#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// The backend for the processor that the program runs on: packed trellis weights, kernels chosen by what the processor
/// has. Throws Error when an instruction set is asked for that is unknown or not there.
std::unique_ptr<Backend> open_cpu_backend(const BackendOptions& options);

/// Its one device.
std::vector<DeviceListing> list_cpu_devices();

}  // namespace pergola
