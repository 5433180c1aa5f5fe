// Weights are encoded on the device a batch of tiles at a time (tile_search.h).

#include <algorithm>
#include <cassert>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/tile_search.h"
#include "trellis/tile.h"

namespace pergola {

namespace cuda {
namespace {

class CudaTileEncoder : public TileBatchEncoder {
 public:
  CudaTileEncoder() {
    int device = 0;
    check(cudaGetDevice(&device), "looking for the device");
    check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device), "looking at the device");
  }

  void encode(Codebook codebook, int bits, std::span<const float> targets, std::span<std::uint16_t> states) override {
    assert(targets.size() % kTileWeights == 0 && states.size() == targets.size());
    if (targets.empty()) return;
    const auto tiles = static_cast<std::int64_t>(targets.size() / kTileWeights);
    const int blocks = static_cast<int>(std::min<std::int64_t>(tiles, processors_));
    grow(rows_, tile_search_row_floats(bits) * sizeof(float) * static_cast<std::size_t>(blocks), "path costs");
    grow(targets_, targets.size_bytes(), "weights to encode");
    grow(states_, states.size_bytes(), "encoded states");
    const cudaStream_t stream = device_.stream();
    check(cudaMemcpyAsync(targets_.data(), targets.data(), targets.size_bytes(), cudaMemcpyHostToDevice, stream),
          "copying weights");
    tile_search(stream, bits, blocks,
                {table(codebook), reinterpret_cast<const float*>(targets_.data()),
                 reinterpret_cast<std::uint16_t*>(states_.data()), reinterpret_cast<float*>(rows_.data()), tiles});
    check(cudaMemcpyAsync(states.data(), states_.data(), states.size_bytes(), cudaMemcpyDeviceToHost, stream),
          "copying states");
    check(cudaStreamSynchronize(stream), "encoding tiles");
  }

 private:
  static void grow(DeviceMemory& memory, std::size_t bytes, std::string_view what) {
    if (memory.bytes() >= bytes) return;
    memory = DeviceMemory();
    memory = DeviceMemory(bytes, what);
  }

  const std::uint16_t* table(Codebook codebook) {
    DeviceMemory& memory = tables_[static_cast<std::size_t>(codebook)];
    if (memory.bytes() == 0) {
      std::vector<std::uint16_t> values(65536);
      for (int state = 0; state < 65536; ++state)
        values[static_cast<std::size_t>(state)] = decode_state(codebook, static_cast<std::uint16_t>(state)).bits;
      memory = DeviceMemory(values.size() * sizeof(std::uint16_t), "a codebook");
      check(cudaMemcpy(memory.data(), values.data(), memory.bytes(), cudaMemcpyHostToDevice), "copying a codebook");
    }
    return reinterpret_cast<const std::uint16_t*>(memory.data());
  }

  Device device_;
  int processors_ = 0;
  DeviceMemory rows_, targets_, states_;
  DeviceMemory tables_[3];
};

}  // namespace
}  // namespace cuda

std::unique_ptr<TileBatchEncoder> make_cuda_tile_encoder() {
  return std::make_unique<cuda::CudaTileEncoder>();
}

}  // namespace pergola
