#include "trellis/hadamard.h"

#include <cassert>

namespace pergola {
namespace {

template <typename T>
void transform_block(T* x) {
  constexpr int n = kHadamardBlock;
  for (int stride = 1; stride < n; stride *= 2) {
    for (int base = 0; base < n; base += 2 * stride) {
      for (int i = base; i < base + stride; ++i) {
        const T a = x[i];
        const T b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
  for (int i = 0; i < n; ++i) x[i] *= static_cast<T>(kHadamardNorm);
}

template <typename T>
void transform(std::span<T> values) {
  assert(values.size() % kHadamardBlock == 0);
  for (std::size_t at = 0; at < values.size(); at += kHadamardBlock) transform_block(values.data() + at);
}

}  // namespace

void hadamard_blocks(std::span<float> values) {
  transform(values);
}
void hadamard_blocks(std::span<double> values) {
  transform(values);
}

}  // namespace pergola
