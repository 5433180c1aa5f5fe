#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/communicator.h"
#include "backend/cuda/device.h"

namespace pergola::cuda {

/// One communicator a device, over NCCL's library, which is loaded when it is first asked for: calls are issued on the
/// device's stream and return at once. None where the program was built without nccl.h or the library is not there.
std::vector<std::unique_ptr<Communicator>> nccl_communicators(std::span<Device* const> devices);

}  // namespace pergola::cuda
