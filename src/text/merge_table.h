#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pergola {

/// From a pair of adjacent token ids to the rank of their merge and the id that it makes: an open-addressing hash
/// table, because this look-up is the innermost step of tokenizing.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = no_rank;  ///< lower merges first
    std::int32_t id = -1;
  };
  static constexpr std::uint32_t no_rank = 0xFFFFFFFFu;

  /// An empty table with room for `count` merges.
  explicit MergeTable(std::size_t count) {
    while ((std::size_t{1} << bits_) < 2 * count) ++bits_;
    slots_.resize(std::size_t{1} << bits_);
  }

  /// Later merges of the same pair replace earlier ones. At most `count` different pairs.
  void insert(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[place_of(key_of(left, right))];
    slot.key = key_of(left, right);
    slot.merge = merge;
  }

  /// The merge of the pair; its rank is no_rank when there is none.
  Merge find(std::int32_t left, std::int32_t right) const { return slots_[place_of(key_of(left, right))].merge; }

 private:
  static constexpr std::uint64_t no_key = ~std::uint64_t{0};  // ids are never negative

  struct Slot {
    std::uint64_t key = no_key;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  std::size_t place_of(std::uint64_t key) const {
    std::size_t place = key * 0x9E3779B97F4A7C15u >> (64 - bits_);  // the top bits depend on both ids
    while (slots_[place].key != key && slots_[place].key != no_key) place = (place + 1) & (slots_.size() - 1);
    return place;
  }

  int bits_ = 4;  // of a slot's number
  std::vector<Slot> slots_;
};

}  // namespace pergola
