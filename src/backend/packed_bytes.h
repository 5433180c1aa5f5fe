#pragma once

#include <cstddef>
#include <span>

#include "backend/operations.h"
#include "trellis/linear_view.h"

namespace pergola {

/// Bytes that the stored weights take, scales and biases included.
std::size_t packed_bytes(const LinearView& linear);
std::size_t packed_bytes(std::span<const LinearView> members);
std::size_t packed_bytes(const MoeView& moe);

}  // namespace pergola
