#include "backend/cuda/repack.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/packed_layout.h"

namespace pergola::cuda {

namespace {

__global__ void repack(const std::uint32_t* disk, std::uint32_t* packed, std::int64_t in_features,
                       std::int64_t out_features, int bits, std::int64_t first_unit, std::int64_t units) {
  const std::int64_t count = units * 64 * out_features * bits / 32,
                     step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * 4;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < count; i += step) {
    uint4 four;
    const WordPlaces first = word_places(i, in_features, out_features, bits, first_unit, units);
    four.x = disk[first.disk];
    four.y = disk[word_places(i + 1, in_features, out_features, bits, first_unit, units).disk];
    four.z = disk[word_places(i + 2, in_features, out_features, bits, first_unit, units).disk];
    four.w = disk[word_places(i + 3, in_features, out_features, bits, first_unit, units).disk];
    *reinterpret_cast<uint4*>(packed + first.packed) = four;
  }
}

}  // namespace

void launch_repack(cudaStream_t stream, const std::uint32_t* disk, std::uint32_t* packed, std::int64_t in_features,
                   std::int64_t out_features, int bits, std::int64_t first_unit, std::int64_t units) {
  const std::int64_t blocks = std::min<std::int64_t>((units * 64 * out_features * bits / 128 + 255) / 256, 1 << 16);
  repack<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(disk, packed, in_features, out_features, bits, first_unit,
                                                            units);
  check(cudaGetLastError(), "repacking weights");
}

}  // namespace pergola::cuda
