#pragma once

#include <cstdint>

// One position of the Viterbi search for two tiles at once, in every instruction set. Plain types only: the files that
// define these functions are compiled for different processors.

namespace pergola::viterbi {

/// values: the codebook in units of `lanes` consecutive out-nodes e: values[(e / lanes * 2^K + b) * lanes + e % lanes]
/// = value of state (b << (16 - K)) | e. from0, from1: path costs by in-node (2^(16-K) each, readable 16 floats
/// beyond). to0, to1: path costs by out-node. to[e] = min over b of from[state >> K] + (value - weight)^2.
using Step = void (*)(const float* values, int bits, const float* from0, const float* from1, float weight0,
                      float weight1, float* to0, float* to1);

inline constexpr int kScalarLanes = 1;
inline constexpr int kAvx2Lanes = 8;
inline constexpr int kAvx512Lanes = 16;

void step_scalar(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
                 float* to0, float* to1);
void step_avx2(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
               float* to0, float* to1);
void step_avx512(const float* values, int bits, const float* from0, const float* from1, float weight0, float weight1,
                 float* to0, float* to1);

}  // namespace pergola::viterbi
