#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blueprint.h"

namespace pergola {

/// Every linear of the layer's blocks.
std::vector<const LinearView*> linears_of(const LayerBlueprint& layer);

/// Where the weights of a part of a model lie in the mapped files.
using StoredSpans = std::vector<std::span<const std::byte>>;

StoredSpans stored_spans(const DenseView& view);
StoredSpans stored_spans(const LinearView& linear);
/// Every linear of the layer's blocks; norms and other small weights are left out.
StoredSpans stored_spans(const LayerBlueprint& layer);

std::uint64_t total_bytes(const StoredSpans& spans);

}  // namespace pergola
