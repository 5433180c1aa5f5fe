#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pergola::cuda {

/// Arranges the words of inputs [64 * first_unit, 64 * (first_unit + units)) of a matrix, as on disk, in packed order
/// (packed_layout.h). `disk` points to the piece, `packed` to the whole matrix; both in device memory.
void launch_repack(cudaStream_t stream, const std::uint32_t* disk, std::uint32_t* packed, std::int64_t in_features,
                   std::int64_t out_features, int bits, std::int64_t first_unit, std::int64_t units);

}  // namespace pergola::cuda
