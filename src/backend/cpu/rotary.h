#pragma once

#include "backend/cpu/context.h"
#include "backend/operations.h"

namespace pergola::cpu {

/// cosine[j], sine[j] = magnitude * cos, sin of position * inv_freq[j] (both fp32), j < dims / 2.
void rotary_angles(const Rope& rope, std::int64_t position, float* cosine, float* sine);

/// Rotates the first rope.dims values of one head in place.
void rotate_head(const FloatKernels& floats, const Rope& rope, const float* cosine, const float* sine, float* head);

}  // namespace pergola::cpu
