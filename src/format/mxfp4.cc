#include "format/mxfp4.h"

#include <array>
#include <cassert>
#include <cmath>

namespace pergola {

namespace {

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr int kScaleBias = 127;
constexpr int kLargestScale = 252;  // 6 * 2^125 is the last to fit bfloat16

}  // namespace

bool decode_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<BFloat16> values) {
  constexpr std::size_t kBytes = kMxfp4Block / 2;
  assert(blocks.size() == scales.size() * kBytes && values.size() == 2 * blocks.size());
  auto value = values.begin();
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const int scale = std::to_integer<int>(scales[block]);
    if (scale > kLargestScale) return false;
    for (const std::byte pair : blocks.subspan(block * kBytes, kBytes)) {
      for (const int nibble : {std::to_integer<int>(pair & std::byte{15}), std::to_integer<int>(pair >> 4)})
        *value++ = to_bfloat16(std::ldexp(kE2m1[static_cast<std::size_t>(nibble)], scale - kScaleBias));
    }
  }
  return true;
}

}  // namespace pergola
