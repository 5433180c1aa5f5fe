#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pergola {

/// Which ids of a vocabulary may be sampled: one bit a token.
class TokenMask {
 public:
  /// All of `size` ids are allowed, or none.
  explicit TokenMask(std::int64_t size, bool allowed = true)
      : size_(size), words_(static_cast<std::size_t>(size + 63) / 64, allowed ? ~std::uint64_t{0} : 0) {}

  std::int64_t size() const { return size_; }
  bool allows(std::int64_t id) const { return (words_[place(id)] >> (id % 64) & 1) != 0; }
  void allow(std::int64_t id) { words_[place(id)] |= std::uint64_t{1} << (id % 64); }
  void forbid(std::int64_t id) { words_[place(id)] &= ~(std::uint64_t{1} << (id % 64)); }
  void forbid_all() { std::fill(words_.begin(), words_.end(), 0); }

  /// The bits, 64 ids a word, lowest id in the lowest bit.
  std::span<const std::uint64_t> words() const { return words_; }
  std::span<std::uint64_t> words() { return words_; }

  /// Sets the logits of forbidden ids to minus infinity. `logits` has size() elements.
  void apply(std::span<float> logits) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      if (words_[word] == ~std::uint64_t{0}) continue;
      if (words_[word] == 0) {
        const std::span<float> forbidden =
            logits.subspan(word * 64).first(std::min<std::size_t>(64, logits.size() - word * 64));
        std::fill(forbidden.begin(), forbidden.end(), -std::numeric_limits<float>::infinity());
        continue;
      }
      apply_mixed(words_[word], logits.subspan(word * 64).first(std::min<std::size_t>(64, logits.size() - word * 64)));
    }
  }

 private:
  /// By eight bits of a mask: what a logit is limited to, infinity where it is allowed. One minimum an element and no
  /// branch: mixed words are what constrained decoding is made of.
  static constexpr std::array<std::array<float, 8>, 256> kLimits = [] {
    std::array<std::array<float, 8>, 256> limits{};
    for (std::size_t bits = 0; bits < 256; ++bits) {
      for (std::size_t i = 0; i < 8; ++i) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        limits[bits][i] = (bits >> i & 1) != 0 ? kInfinity : -kInfinity;
      }
    }
    return limits;
  }();

  static void apply_mixed(std::uint64_t word, std::span<float> logits) {
    if (logits.size() < 64) {
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::min(logits[i], kLimits[word >> i & 1][0]);
      return;
    }
    for (std::size_t byte = 0; byte < 8; ++byte) {
      const std::array<float, 8>& limits = kLimits[word >> (8 * byte) & 0xFF];
      float* const part = logits.data() + 8 * byte;
      for (std::size_t i = 0; i < 8; ++i) part[i] = std::min(part[i], limits[i]);
    }
  }

  static std::size_t place(std::int64_t id) { return static_cast<std::size_t>(id) / 64; }

  std::int64_t size_;
  std::vector<std::uint64_t> words_;
};

}  // namespace pergola
