#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pergola {

/// Remembers the ids of words seen in one text: natural text repeats its words. Bounded; not for several threads.
class WordCache {
 public:
  /// Words longer than this are not worth remembering.
  static constexpr std::size_t longest_word = 64;

  /// A slot for `word`, found or free. Valid until the next insert.
  struct Place {
    std::size_t slot;
    std::size_t hash;
    bool found;
  };

  Place locate(std::string_view word) const {
    const std::size_t hash = std::hash<std::string_view>()(word);
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash & mask;
    for (; slots_[slot].used; slot = (slot + 1) & mask) {
      if (slots_[slot].hash == hash && key_of(slots_[slot]) == word) return {slot, hash, true};
    }
    return {slot, hash, false};
  }

  std::span<const std::int32_t> ids_at(const Place& place) const {
    const Slot& slot = slots_[place.slot];
    return std::span(ids_).subspan(slot.ids_begin, slot.ids_count);
  }

  /// Fills the free slot that locate gave.
  void insert(const Place& place, std::string_view word, std::span<const std::int32_t> ids) {
    if (count_ >= most_words) return;
    slots_[place.slot] = {true,
                          static_cast<std::uint32_t>(word.size()),
                          static_cast<std::uint32_t>(ids.size()),
                          keys_.size(),
                          ids_.size(),
                          place.hash};
    keys_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    if (++count_ * 2 > slots_.size()) grow();
  }

 private:
  static constexpr std::size_t most_words = 1 << 17;

  struct Slot {
    bool used = false;
    std::uint32_t key_size = 0;
    std::uint32_t ids_count = 0;
    std::size_t key_begin = 0;
    std::size_t ids_begin = 0;
    std::size_t hash = 0;
  };

  std::string_view key_of(const Slot& slot) const {
    return std::string_view(keys_).substr(slot.key_begin, slot.key_size);
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (!slot.used) continue;
      std::size_t place = slot.hash & mask;
      while (slots_[place].used) place = (place + 1) & mask;
      slots_[place] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);
  std::string keys_;
  std::vector<std::int32_t> ids_;
  std::size_t count_ = 0;
};

}  // namespace pergola
