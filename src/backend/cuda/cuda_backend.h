#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "trellis/tile_batch_encoder.h"

namespace pergola {

/// Opens the CUDA device options.device. Throws Error in one sentence where there is none, or where the backend was not
/// built.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

/// Opens the first CUDA device for encoding weights. Throws like make_cuda_backend.
std::unique_ptr<TileBatchEncoder> make_cuda_tile_encoder();

/// The CUDA devices of this machine, or why there are none.
std::vector<DeviceListing> list_cuda_devices();

/// Communicators over NCCL; none where the backends are not CUDA devices, all different, or where NCCL was not there
/// when the program was built or is not there now. Throws Error when NCCL does not start.
std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(std::span<Backend* const> backends);

}  // namespace pergola
