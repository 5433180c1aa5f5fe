#pragma once

#include <memory>
#include <string_view>

#include "trellis/tile_batch_encoder.h"

namespace pergola {

/// The device encoder of the backend of that name; nothing where the processor's own encoder (TileEncoder) is to be
/// used. Throws Error where the device cannot be opened.
std::unique_ptr<TileBatchEncoder> open_tile_encoder(std::string_view backend);

}  // namespace pergola
