#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// Opens the first CUDA device. Throws Error in one sentence where there is none, or where the backend was not built.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

/// The CUDA devices of this machine, or why there are none.
std::vector<DeviceListing> list_cuda_devices();

}  // namespace pergola
