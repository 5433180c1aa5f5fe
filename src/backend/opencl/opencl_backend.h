#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace pergola {

/// Opens OpenCL device BackendOptions::device. Throws Error in one sentence where there is none, or where the backend
/// was not built.
std::unique_ptr<Backend> make_opencl_backend(const BackendOptions& options);

/// The OpenCL devices of this machine, or why there are none.
std::vector<DeviceListing> list_opencl_devices();

/// What the devices say of themselves, name and value, for reports: one list a device, in the order of the listing.
std::vector<std::vector<std::pair<std::string, std::string>>> describe_opencl_devices();

}  // namespace pergola
