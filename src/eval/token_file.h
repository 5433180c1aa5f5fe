#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

namespace pergola {

/// Windows of token ids of one length: the `input_ids` of a safetensors file, I32 or I64, [windows, length] or one
/// window [length].
class TokenFile {
 public:
  /// Throws Error for a missing or empty tensor, another rank or type, and ids that are negative or do not fit 31 bits.
  explicit TokenFile(const std::filesystem::path& path);

  /// Windows of ids that are at hand; their number is a multiple of `length`.
  TokenFile(std::vector<std::int32_t> ids, std::int64_t length) : length_(length), ids_(std::move(ids)) {}

  std::int64_t windows() const { return static_cast<std::int64_t>(ids_.size()) / length_; }
  std::int64_t length() const { return length_; }
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const std::int32_t> window(std::int64_t index) const {
    return ids().subspan(static_cast<std::size_t>(index * length_), static_cast<std::size_t>(length_));
  }

 private:
  std::int64_t length_ = 0;
  std::vector<std::int32_t> ids_;
};

}  // namespace pergola
