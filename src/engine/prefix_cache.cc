#include "engine/prefix_cache.h"

#include <cassert>

namespace pergola {

struct PrefixCache::Node {
  Node* parent = nullptr;
  Children::iterator place;  // in the parent's children
  Children children;
  std::int32_t page = -1;
  std::optional<std::int32_t> checkpoint;
  std::uint64_t used = 0;        // when the page was last of use
  std::uint64_t state_used = 0;  // when the state was

  template <typename Visit>
  void for_each(const Visit& visit) {
    for (const auto& [tokens, node] : children) {
      visit(*node);
      node->for_each(visit);
    }
  }
};

PrefixCache::PrefixCache(CachePool& pool, std::int64_t checkpoints, bool needs_state)
    : pool_(pool), needs_state_(needs_state), root_(std::make_unique<Node>()), checkpoints_(checkpoints) {}

PrefixCache::~PrefixCache() {
  root_->for_each([this](const Node& node) { pool_.pages.give_back(node.page); });
}

PrefixCache::Node* PrefixCache::child(Node& parent, std::span<const std::int32_t> tokens) const {
  const auto found = parent.children.find({tokens.begin(), tokens.end()});
  return found == parent.children.end() ? nullptr : found->second.get();
}

PrefixCache::Match PrefixCache::find(std::span<const std::int32_t> tokens) {
  const auto page_size = static_cast<std::size_t>(pool_.page_size);
  Match match;
  std::vector<std::int32_t> pages;
  Node* node = root_.get();
  Node* matched = nullptr;
  // At least one token stays: its logits are wanted.
  for (std::size_t end = page_size; end < tokens.size(); end += page_size) {
    node = child(*node, tokens.subspan(end - page_size, page_size));
    if (node == nullptr) break;
    pages.push_back(node->page);
    if (needs_state_ && !node->checkpoint) continue;
    matched = node;
    match = {pages, static_cast<std::int64_t>(end), node->checkpoint};
  }
  if (matched == nullptr) return match;
  ++now_;
  matched->state_used = now_;
  for (Node* above = matched; above != root_.get(); above = above->parent) above->used = now_;
  return match;
}

std::optional<std::int32_t> PrefixCache::insert(std::span<const std::int32_t> tokens,
                                                std::span<const std::int32_t> pages) {
  const auto page_size = static_cast<std::size_t>(pool_.page_size);
  assert(!pages.empty() && tokens.size() == pages.size() * page_size);
  if (needs_state_ && checkpoints_.size() == 0) return std::nullopt;
  ++now_;
  Node* node = root_.get();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const auto part = tokens.subspan(i * page_size, page_size);
    Node* next = child(*node, part);
    if (next == nullptr) {
      const auto place = node->children.emplace(std::vector(part.begin(), part.end()), std::make_unique<Node>()).first;
      next = place->second.get();
      next->parent = node;
      next->place = place;
      next->page = pages[i];
      pool_.pages.share(pages[i]);
      ++pages_;
    }
    next->used = now_;
    node = next;
  }
  node->state_used = now_;
  if (!needs_state_ || node->checkpoint) return std::nullopt;
  node->checkpoint = take_checkpoint(*node);
  return node->checkpoint;
}

std::optional<std::int32_t> PrefixCache::take_checkpoint(const Node& keep) {
  if (checkpoints_.available() == 0) {
    Node* oldest = nullptr;
    root_->for_each([&](Node& node) {
      if (node.checkpoint && &node != &keep && (oldest == nullptr || node.state_used < oldest->state_used)) {
        oldest = &node;
      }
    });
    assert(oldest != nullptr);
    checkpoints_.give_back(*oldest->checkpoint);
    oldest->checkpoint.reset();
    if (oldest->children.empty()) remove(*oldest);
  }
  return checkpoints_.take();
}

void PrefixCache::remove(Node& leaf) {
  Node* node = &leaf;
  do {
    assert(node->children.empty());
    Node* const parent = node->parent;
    if (node->checkpoint) checkpoints_.give_back(*node->checkpoint);
    pool_.pages.give_back(node->page);
    --pages_;
    parent->children.erase(Children::iterator(node->place));
    node = parent;
  } while (node != root_.get() && node->children.empty() && needs_state_ && !node->checkpoint);
}

std::int64_t PrefixCache::evict(std::int64_t pages) {
  const std::int64_t before = pool_.pages.available();
  while (pool_.pages.available() - before < pages) {
    Node* oldest = nullptr;
    root_->for_each([&](Node& node) {
      if (node.children.empty() && pool_.pages.holders(node.page) == 1 &&
          (oldest == nullptr || node.used < oldest->used)) {
        oldest = &node;
      }
    });
    if (oldest == nullptr) break;
    remove(*oldest);
  }
  return pool_.pages.available() - before;
}

std::int64_t PrefixCache::evictable() const {
  // Who shares a page shares those before it, so whatever is held by the tree alone can go from the leaves up.
  std::int64_t count = 0;
  root_->for_each([&](const Node& node) { count += pool_.pages.holders(node.page) == 1 ? 1 : 0; });
  return count;
}

}  // namespace pergola
