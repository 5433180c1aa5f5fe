#include "backend/cpu/rotary.h"

#include <cmath>

namespace pergola::cpu {

void rotary_angles(const Rope& rope, std::int64_t position, float* cosine, float* sine) {
  const float* inv_freq = rope.dims > 0 ? rope.inv_freq.data<float>() : nullptr;
  for (int j = 0; j < rope.dims / 2; ++j) {
    const float angle = static_cast<float>(position) * inv_freq[j];
    cosine[j] = std::cos(angle) * rope.magnitude;
    sine[j] = std::sin(angle) * rope.magnitude;
  }
}

void rotate_head(const FloatKernels& floats, const Rope& rope, const float* cosine, const float* sine, float* head) {
  const int pairs = rope.dims / 2;
  if (!rope.interleaved) {
    floats.rotate_halves(head, cosine, sine, pairs);
    return;
  }
  for (int j = 0; j < pairs; ++j) {
    const float first = head[2 * j];
    const float second = head[2 * j + 1];
    head[2 * j] = first * cosine[j] - second * sine[j];
    head[2 * j + 1] = second * cosine[j] + first * sine[j];
  }
}

}  // namespace pergola::cpu
