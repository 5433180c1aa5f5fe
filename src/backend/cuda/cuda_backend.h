#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "trellis/tile_batch_encoder.h"

namespace pergola {

/// Opens the first CUDA device. Throws Error in one sentence where there is none, or where the backend was not built.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

/// Opens the first CUDA device for encoding weights. Throws like make_cuda_backend.
std::unique_ptr<TileBatchEncoder> make_cuda_tile_encoder();

/// The CUDA devices of this machine, or why there are none.
std::vector<DeviceListing> list_cuda_devices();

}  // namespace pergola
