#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace pergola {

/// The numbers 0..size-1 that sequences take and give back: KV pages, recurrent-state slots. Several holders may share
/// a number: it is free again when the last one gave it back. Lowest first while fresh; allocates nothing after
/// construction.
class IndexPool {
 public:
  explicit IndexPool(std::int64_t size) : size_(size), holders_(static_cast<std::size_t>(size), 0) {
    free_.reserve(static_cast<std::size_t>(size));
    for (std::int64_t index = size - 1; index >= 0; --index) free_.push_back(static_cast<std::int32_t>(index));
  }

  std::int64_t size() const { return size_; }
  std::int64_t available() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t in_use() const { return size() - available(); }

  /// One number; the caller has checked that one is available.
  std::int32_t take() {
    assert(!free_.empty());
    const std::int32_t index = free_.back();
    free_.pop_back();
    holders_[static_cast<std::size_t>(index)] = 1;
    return index;
  }

  /// One holder more of a number that is in use.
  void share(std::int32_t index) {
    assert(holders(index) > 0);
    ++holders_[static_cast<std::size_t>(index)];
  }

  std::int32_t holders(std::int32_t index) const {
    assert(index >= 0 && index < size());
    return holders_[static_cast<std::size_t>(index)];
  }

  void give_back(std::int32_t index) {
    assert(holders(index) > 0);
    if (--holders_[static_cast<std::size_t>(index)] == 0) free_.push_back(index);
  }

 private:
  std::int64_t size_;
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> holders_;
};

/// What sequences share: pages of the KV cache and slots of recurrent state.
struct CachePool {
  IndexPool pages;
  IndexPool slots;
  std::int64_t page_size;  ///< tokens of a page
};

}  // namespace pergola
