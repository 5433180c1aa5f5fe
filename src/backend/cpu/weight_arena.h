#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pergola {

/// Memory of all weights that a backend repacked or copied: large anonymous mappings with huge pages, handed out front
/// to back and freed together. Memory that was not handed out yet takes no pages.
class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  /// `bytes` bytes of zeros, 64-byte aligned. Throws Error when the system has no more memory. Not thread-safe.
  std::byte* allocate(std::int64_t bytes);

  /// Bytes handed out so far.
  std::int64_t bytes() const { return handed_out_; }

 private:
  struct Slab {
    std::byte* begin = nullptr;
    std::int64_t size = 0;
    std::int64_t used = 0;
  };

  std::vector<Slab> slabs_;
  std::int64_t handed_out_ = 0;
};

}  // namespace pergola
