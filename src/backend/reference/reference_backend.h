#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// The backend that defines every operation in plain loops (docs/numerics.md). Everything is f32 in host memory, sums
/// are double. Slow; unlike other backends its operations may allocate. It uses `threads` of the options and ignores
/// the choices of instruction set and precision.
std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

/// Its one device, which is always there.
std::vector<DeviceListing> list_reference_devices();

}  // namespace pergola
