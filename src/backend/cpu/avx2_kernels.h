#pragma once

#include "backend/cpu/linear_kernels.h"

// What the AVX2 files share with each other. Only files compiled for AVX2 may include it.

namespace pergola::avx2 {

/// One row of the "int16" forms: `chunks` = in_features / 128 chunks of 64 dwords, a dword the pair of rows (r, r + 4)
/// as int16 in the order of step_pair; then per chunk the factor of its int32 sums and the value that sums start from;
/// then one float that every column adds.
struct IntRow {
  const std::int32_t* pairs;
  const float* scales;
  const std::int32_t* starts;
  float offset;
};

constexpr std::int64_t int_row_bytes(std::int64_t in_features) {
  const std::int64_t chunks = in_features / 128;
  return (chunks * (256 + 8) + 4 + 63) / 64 * 64;
}

static inline IntRow int_row(const std::byte* form, std::int64_t in_features, std::int64_t row) {
  const std::int64_t chunks = in_features / 128;
  const std::byte* at = form + row * int_row_bytes(in_features);
  const auto* scales = reinterpret_cast<const float*>(at + chunks * 256);
  const auto* starts = reinterpret_cast<const std::int32_t*>(scales + chunks);
  return {reinterpret_cast<const std::int32_t*>(at), scales, starts, *reinterpret_cast<const float*>(starts + chunks)};
}

/// int16 activations with a scale per 128 inputs, for mul1 weights as byte sums.
extern const ActivationForm kMul1Int16Form;
/// int13 activations with a scale per 128 inputs, for weights in units of 2^-10.
extern const ActivationForm kInt13Form;
/// fp32 times 2^96, rows in the order of step_pair: (r, r + 4) pairs.
extern const ActivationForm kPairFloatForm;

void finish_block(float* z, const Half* svh, const float* bias, std::int64_t count, float* out);

void add_dense_kernels(KernelTable& table);
void add_int_kernels(KernelTable& table);
void add_int_kernels_vnni(KernelTable& table);  ///< the same with AVX-VNNI
void add_float_kernels(KernelTable& table);

}  // namespace pergola::avx2
