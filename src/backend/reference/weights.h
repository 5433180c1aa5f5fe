#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trellis/linear_view.h"

namespace pergola::reference {

/// Values [first, first + count) of a dense view, counted over all rows, as floats.
void read_dense(const DenseView& view, std::int64_t first, std::int64_t count, float* out);

/// Values [first, first + count) of a vector of binary16 at any alignment.
void read_halves(std::span<const std::byte> bytes, std::int64_t first, std::int64_t count, float* out);

/// Decodes output columns [first, first + count) of the inner weight (multiples of 16) to out[count][in_features]:
/// transposed, so that the weights of an output lie together as in a dense weight.
void decode_columns(const TrellisView& view, std::int64_t first, std::int64_t count, float* out);

}  // namespace pergola::reference
