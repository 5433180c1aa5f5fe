#include "text/grammar/matcher.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace pergola {
namespace {

constexpr std::size_t kMaxItems = 20'000;  // of one configuration

std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
}

}  // namespace

std::size_t Matcher::Hash::operator()(const std::vector<std::uint64_t>& key) const {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a over words, with a mixing shift
  for (const std::uint64_t word : key) {
    hash = (hash ^ word) * 0x100000001B3;
    hash ^= hash >> 29;
  }
  return hash;
}

void Matcher::clear() {
  frames_.clear();
  frame_ids_.clear();
  configurations_.clear();
  ids_.clear();
}

Matcher::FrameId Matcher::push(std::int32_t return_to, FrameId below) {
  const auto [found, added] = frame_ids_.try_emplace(pair_key(return_to, below), static_cast<FrameId>(frames_.size()));
  if (added) frames_.push_back({return_to, below, depth_of(below) + 1});
  return found->second;
}

Matcher::Configuration Matcher::intern(std::vector<Item> items, bool accepts, bool pops) {
  std::sort(items.begin(), items.end());
  std::vector<std::uint64_t> key;
  key.reserve(items.size() + 1);
  for (const Item& item : items) key.push_back(pair_key(item.node, item.frame));
  key.push_back((accepts ? 1 : 0) | (pops ? 2 : 0));
  const auto [found, added] = ids_.try_emplace(std::move(key), static_cast<Configuration>(configurations_.size()));
  if (added) {
    State& state = configurations_.emplace_back();
    state.items = std::move(items);
    state.accepts = accepts;
    state.pops = pops;
  }
  return found->second;
}

// Follows everything that takes no byte, and keeps the nodes that have edges.
Matcher::Configuration Matcher::closed(std::vector<Item> work) {
  std::set<Item> seen;
  std::vector<Item> items;
  bool accepts = false;
  bool pops = false;
  while (!work.empty()) {
    const Item item = work.back();
    work.pop_back();
    if (!seen.insert(item).second) continue;
    if (seen.size() > kMaxItems) throw Error("the grammar is too ambiguous");
    const Automaton::Node& node = automaton_->node(item.node);
    if (!node.edges.empty()) items.push_back(item);
    for (const std::int32_t to : node.empty) work.push_back({to, item.frame});
    if (depth_of(item.frame) < kMaxDepth) {
      for (const Automaton::Call& call : node.calls) work.push_back({call.rule, push(call.to, item.frame)});
    }
    if (!node.ends_rule) continue;
    if (item.frame == kNone) {
      accepts = true;
    } else if (item.frame == kUnknown) {
      pops = true;
    } else {
      work.push_back({frame(item.frame).return_to, frame(item.frame).below});
    }
  }
  if (items.empty() && !accepts && !pops) return kDead;
  return intern(std::move(items), accepts, pops);
}

Matcher::Configuration Matcher::start(bool spaced) {
  const Configuration first = closed({{spaced ? automaton_->spaced_start() : automaton_->start(), kNone}});
  if (first == kDead) throw Error("no text satisfies the grammar");
  return first;
}

Matcher::Configuration Matcher::next(Configuration from, unsigned char byte) {
  constexpr Configuration kUntried = -2;
  if (at(from).next == nullptr) {
    at(from).next = std::make_unique<std::array<Configuration, 256>>();
    at(from).next->fill(kUntried);
  }
  Configuration& known = (*at(from).next)[byte];  // a deque does not move its elements
  if (known != kUntried) return known;
  std::vector<Item> work;
  for (const Item& item : at(from).items) {
    for (const Automaton::Edge& edge : automaton_->node(item.node).edges) {
      if (byte >= edge.first && byte <= edge.last) work.push_back({edge.to, item.frame});
    }
  }
  known = work.empty() ? kDead : closed(std::move(work));
  return known;
}

// The innermost frame that all stacks share.
Matcher::FrameId Matcher::common_frame(const std::vector<Item>& items) const {
  FrameId common = items.front().frame;
  for (const Item& item : items) {
    FrameId other = item.frame;
    while (common != other) {
      if (common < 0 || other < 0) return kNone;
      if (depth_of(common) >= depth_of(other)) {
        common = frame(common).below;
      } else {
        other = frame(other).below;
      }
    }
  }
  return common;
}

// The part of a stack above `base`, on unknown ground.
Matcher::FrameId Matcher::above(FrameId id, FrameId base) {
  if (id == base) return kUnknown;
  const Frame copy = frame(id);
  return push(copy.return_to, above(copy.below, base));
}

Matcher::Local Matcher::local(Configuration configuration) {
  if (at(configuration).has_local) return at(configuration).local;
  at(configuration).has_local = true;
  const std::vector<Item> items = at(configuration).items;
  if (items.empty() || at(configuration).pops) return at(configuration).local;
  const FrameId base = common_frame(items);
  if (base < 0) return at(configuration).local;
  std::vector<Item> inner;
  for (const Item& item : items) inner.push_back({item.node, above(item.frame, base)});
  const Configuration outer = closed({{frame(base).return_to, frame(base).below}});
  if (outer == kDead) return at(configuration).local;
  const Local local{intern(std::move(inner), false, false), outer};
  at(configuration).local = local;
  return local;
}

}  // namespace pergola
