#pragma once

#include <algorithm>
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
      for (std::size_t id = word * 64; id < std::min(word * 64 + 64, logits.size()); ++id) {
        if ((words_[word] >> (id % 64) & 1) == 0) logits[id] = -std::numeric_limits<float>::infinity();
      }
    }
  }

 private:
  static std::size_t place(std::int64_t id) { return static_cast<std::size_t>(id) / 64; }

  std::int64_t size_;
  std::vector<std::uint64_t> words_;
};

}  // namespace pergola
