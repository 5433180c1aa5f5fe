#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace pergola {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
  fail({.field = "--backend"}, "the CUDA backend was not built into this program");
}

std::unique_ptr<TileBatchEncoder> make_cuda_tile_encoder() {
  fail({.field = "--backend"}, "the CUDA backend was not built into this program");
}

std::vector<DeviceListing> list_cuda_devices() {
  return {{"cuda", "", "not built", false}};
}

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(std::span<Backend* const>) {
  return {};
}

}  // namespace pergola
