#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/index_pool.h"

namespace pergola {

/// Beginnings of prompts whose keys, values and recurrent state are still there: a tree with a page of tokens a node. A
/// sequence that starts with the same tokens shares the pages and starts from the state that was kept at their end. The
/// least recently used page or state goes first. One thread at a time.
class PrefixCache {
 public:
  /// What is known of a prompt.
  struct Match {
    std::vector<std::int32_t> pages;
    std::int64_t tokens = 0;                 ///< those that the pages hold
    std::optional<std::int32_t> checkpoint;  ///< number of the state after them; nothing where models keep none
  };

  /// Keeps states at `checkpoints` places, numbered from 0. `needs_state`: pages are of use only together with the
  /// state at their end. `pool` outlives it.
  PrefixCache(CachePool& pool, std::int64_t checkpoints, bool needs_state);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// Whether anything can be kept at all.
  bool can_keep() const { return !needs_state_ || checkpoints_.size() > 0; }

  /// The longest known beginning of `tokens` that leaves at least one of them to compute. The caller shares the pages
  /// before it calls anything else here.
  Match find(std::span<const std::int32_t> tokens);

  /// Notes that `pages` hold exactly `tokens`. Returns the number under which the caller now keeps the state after
  /// them, or nothing if it is kept already, or if there is no place for it.
  std::optional<std::int32_t> insert(std::span<const std::int32_t> tokens, std::span<const std::int32_t> pages);

  /// Gives pages back that no sequence shares until `pages` are free again or none is left; returns how many.
  std::int64_t evict(std::int64_t pages);

  /// Pages that evict could give back.
  std::int64_t evictable() const;
  /// Pages in the tree, shared or not.
  std::int64_t pages() const { return pages_; }

 private:
  struct Node;
  using Children = std::map<std::vector<std::int32_t>, std::unique_ptr<Node>>;

  Node* child(Node& parent, std::span<const std::int32_t> tokens) const;
  std::optional<std::int32_t> take_checkpoint(const Node& keep);
  /// Removes a leaf, and above it what is of no use without it.
  void remove(Node& leaf);

  CachePool& pool_;
  bool needs_state_;
  std::unique_ptr<Node> root_;
  IndexPool checkpoints_;
  std::int64_t pages_ = 0;
  std::uint64_t now_ = 0;  ///< counts uses
};

}  // namespace pergola
