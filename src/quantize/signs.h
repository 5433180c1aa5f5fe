#pragma once

#include <cstdint>

namespace pergola {

/// Random signs that are the same on every platform (SplitMix64; Steele, Lea, Flood 2014).
class SignSource {
 public:
  explicit SignSource(std::uint64_t seed) : state_(seed) {}

  /// 64 random bits.
  std::uint64_t next_word() { return mix(state_ += 0x9E3779B97F4A7C15ull); }

  /// +1 or -1.
  float next() {
    if (left_ == 0) {
      bits_ = next_word();
      left_ = 64;
    }
    const float sign = (bits_ & 1) != 0 ? -1.0f : 1.0f;
    bits_ >>= 1;
    --left_;
    return sign;
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
  std::uint64_t bits_ = 0;
  int left_ = 0;
};

}  // namespace pergola
