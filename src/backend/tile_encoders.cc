#include "backend/tile_encoders.h"

#include "backend/cuda/cuda_backend.h"

namespace pergola {

std::unique_ptr<TileBatchEncoder> open_tile_encoder(std::string_view backend) {
  if (backend == "cuda") return make_cuda_tile_encoder();
  return nullptr;
}

}  // namespace pergola
