#pragma once

// For the AVX-512 files only (functions here have internal linkage: see trellis_avx512.h).

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/packed_matrix.h"

namespace pergola {

// Activation forms of the AVX-512 and AMX kernels. Both kinds start as x * suh and its Hadamard transform in fp32 and
// round once, to integers of a common scale or to a short float.
//
// A "row pair" is a dword of two values: rows pair_row(j) and pair_row(j) + 4 of a band of 16 inputs, j = 0..7, the
// lower one in the low half. That is what one step of a piece multiplies.

// --- vector forms: one row after the other
// -------------------------------------------------------------------------------------------------
//
// A row is [k / 16 bands][8 row pairs] dwords, then for every chunk of 128 inputs its scale (f32) and the sum of its
// integers (i32), then the sum of scale * sum over the chunks (f32).

static constexpr std::int64_t vector_row_bytes(std::int64_t in_features) {
  return (in_features * 2 + in_features / kChunkRows * 8 + 4 + 63) / 64 * 64;
}
static constexpr std::int64_t vector_scales_offset(std::int64_t in_features) {
  return in_features * 2;
}
static constexpr std::int64_t vector_sums_offset(std::int64_t in_features) {
  return in_features * 2 + in_features / kChunkRows * 4;
}
static constexpr std::int64_t vector_total_offset(std::int64_t in_features) {
  return in_features * 2 + in_features / kChunkRows * 8;
}

/// int16 pairs. The scale is the larger of max|x| / 32767 and, so that no sum of 128 products can leave int32, of
/// sum|x| * L / 2^31 with L the largest integer weight: 510 for MUL1 (no limit), 2^14 or 2^15 for halves.
extern const ActivationForm kInt16Form;
extern const ActivationForm kInt16Halves12Form;  ///< for weights in units of 2^-12
extern const ActivationForm kInt16Halves13Form;  ///< for weights in units of 2^-13
/// Each int8 value twice in its half, for products with the bytes of MUL1 states.
extern const ActivationForm kInt8PairForm;
/// int8, four bands together: a dword is the row pairs j (even) and j + 1 of a band as (a_j, a_{j+1}, b_j, b_{j+1}).
/// Takes half of a row's values.
extern const ActivationForm kInt8QuadForm;
/// binary16 pairs, scaled so that the largest of a chunk is 16: sums of 32 products stay below 2^11 and well above the
/// subnormals.
extern const ActivationForm kHalfPairForm;

/// FinishBlock of linear_kernels.h.
void finish_block_avx512(float* z, const Half* svh, const float* bias, std::int64_t count, float* out);

}  // namespace pergola
