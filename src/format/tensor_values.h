#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trellis/linear_view.h"

namespace pergola {

/// Converts rows x columns stored values (f32, f16, bf16) to float; `out` has exactly that many elements.
void read_floats(const DenseView& view, std::span<float> out);

/// The same as a new vector, rows packed.
std::vector<float> to_floats(const DenseView& view);

}  // namespace pergola
