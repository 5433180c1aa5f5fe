#include "text/grammar/automaton.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "text/utf8.h"

namespace pergola {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr int kLeadingSpace = 8;  // characters

}  // namespace

CodePoints normalized(CodePoints ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodePoints out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodePoints complement(const CodePoints& ranges) {
  CodePoints with_surrogates = ranges;
  with_surrogates.emplace_back(0xD800, 0xDFFF);
  CodePoints out;
  char32_t next = 0;
  for (const auto& [first, last] : normalized(std::move(with_surrogates))) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) out.emplace_back(next, kLast);
  return out;
}

CodePoints intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints out;
  for (const auto& [first, last] : a) {
    for (const auto& [other_first, other_last] : b) {
      const char32_t low = std::max(first, other_first);
      const char32_t high = std::min(last, other_last);
      if (low <= high) out.emplace_back(low, high);
    }
  }
  return normalized(std::move(out));
}

AutomatonBuilder::NodeId AutomatonBuilder::node() {
  if (nodes_.size() == kMaxNodes) fail({}, "the grammar is too large: more than {} states", kMaxNodes);
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

void AutomatonBuilder::byte(NodeId from, unsigned char first, unsigned char last, NodeId to) {
  at(from).edges.push_back({first, last, to});
}

AutomatonBuilder::NodeId AutomatonBuilder::text(NodeId from, std::string_view text) {
  for (const char c : text) {
    const NodeId next = node();
    byte(from, static_cast<unsigned char>(c), static_cast<unsigned char>(c), next);
    from = next;
  }
  return from;
}

AutomatonBuilder::NodeId AutomatonBuilder::mark(NodeId from, std::string_view content) {
  const NodeId end = text(from, content);
  std::string special(1, kSpecialMark);
  special += content;
  empty(text(from, special), end);
  return end;
}

// Texts share their beginnings, so that a long list is one state at a time.
AutomatonBuilder::NodeId AutomatonBuilder::choice(NodeId from, const std::vector<std::string>& texts) {
  const NodeId end = node();
  std::map<std::pair<NodeId, char>, NodeId> edges;
  const NodeId root = node();
  empty(from, root);
  for (const std::string& text : texts) {
    NodeId current = root;
    for (const char c : text) {
      const auto [found, added] = edges.try_emplace({current, c}, 0);
      if (added) {
        found->second = node();
        byte(current, static_cast<unsigned char>(c), static_cast<unsigned char>(c), found->second);
      }
      current = found->second;
    }
    empty(current, end);
  }
  return end;
}

AutomatonBuilder::NodeId AutomatonBuilder::one_of(NodeId from, const CodePoints& set) {
  const NodeId to = node();
  one_of(from, set, to);
  return to;
}

void AutomatonBuilder::one_of(NodeId from, const CodePoints& set, NodeId to) {
  for (const auto& [first, last] : set) {
    // Cut where the encoding changes its length, and at the surrogates, which have none.
    static constexpr std::array<std::pair<char32_t, char32_t>, 5> kLengths = {
        {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLast}}};
    for (const auto& [low, high] : kLengths) {
      if (std::max(first, low) <= std::min(last, high))
        utf8_range(from, std::max(first, low), std::min(last, high), to);
    }
  }
}

// Code points whose encodings have one length. Splits until every byte runs over a range that does not depend on the
// bytes before it.
void AutomatonBuilder::utf8_range(NodeId from, char32_t first, char32_t last, NodeId to) {
  std::string low;
  std::string high;
  utf8_append(low, first);
  utf8_append(high, last);
  for (std::size_t tail = 1; tail < low.size(); ++tail) {  // bytes behind the one that is looked at
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      utf8_range(from, first, first | mask, to);
      return utf8_range(from, (first | mask) + 1, last, to);
    }
    if ((last & mask) != mask) {
      utf8_range(from, first, (last & ~mask) - 1, to);
      return utf8_range(from, last & ~mask, last, to);
    }
  }
  for (std::size_t i = 0; i < low.size(); ++i) {
    const NodeId next = i + 1 == low.size() ? to : node();
    byte(from, static_cast<unsigned char>(low[i]), static_cast<unsigned char>(high[i]), next);
    from = next;
  }
}

// One node for every length of the part of `end` that the text ends with.
AutomatonBuilder::NodeId AutomatonBuilder::text_until(NodeId from, std::string_view end) {
  std::vector<NodeId> states;
  for (std::size_t i = 0; i <= end.size(); ++i) states.push_back(node());
  empty(from, states[0]);
  const CodePoints beyond_ascii = {{0x80, kLast}};
  for (std::size_t matched = 0; matched < end.size(); ++matched) {
    one_of(states[matched], beyond_ascii, states[0]);
    for (int c = 1; c < 0x80; ++c) {
      if (c < 0x20 && c != '\n' && c != '\t' && c != '\r') continue;
      std::string text(end.substr(0, matched));
      text += static_cast<char>(c);
      std::size_t length = text.size();
      while (!end.starts_with(std::string_view(text).substr(text.size() - length))) --length;
      byte(states[matched], static_cast<unsigned char>(c), static_cast<unsigned char>(c), states[length]);
    }
  }
  return states.back();
}

AutomatonBuilder::NodeId AutomatonBuilder::call(NodeId from, NodeId rule) {
  const NodeId to = node();
  at(from).calls.push_back({rule, to});
  return to;
}

// Nodes from which the end of their rule can be reached.
std::vector<bool> AutomatonBuilder::productive() const {
  std::vector<std::vector<NodeId>> users(nodes_.size());  // nodes that may become productive through a node
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    for (const auto& edge : nodes_[i].edges) users[static_cast<std::size_t>(edge.to)].push_back(id);
    for (const NodeId to : nodes_[i].empty) users[static_cast<std::size_t>(to)].push_back(id);
    for (const auto& call : nodes_[i].calls) {
      users[static_cast<std::size_t>(call.to)].push_back(id);
      users[static_cast<std::size_t>(call.rule)].push_back(id);
    }
  }
  std::vector<bool> known(nodes_.size(), false);
  const auto holds = [&](const Automaton::Node& node) {
    if (node.ends_rule) return true;
    const auto reached = [&](NodeId to) { return known[static_cast<std::size_t>(to)]; };
    return std::any_of(node.edges.begin(), node.edges.end(), [&](const auto& edge) { return reached(edge.to); }) ||
           std::any_of(node.empty.begin(), node.empty.end(), reached) ||
           std::any_of(node.calls.begin(), node.calls.end(),
                       [&](const auto& call) { return reached(call.rule) && reached(call.to); });
  };
  std::vector<NodeId> work;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].ends_rule) work.push_back(static_cast<NodeId>(i));
  }
  while (!work.empty()) {
    const auto id = static_cast<std::size_t>(work.back());
    work.pop_back();
    if (known[id] || !holds(nodes_[id])) continue;
    known[id] = true;
    work.insert(work.end(), users[id].begin(), users[id].end());
  }
  return known;
}

bool AutomatonBuilder::build(NodeId start, Automaton& out) {
  NodeId spaced = node();
  out.spaced_start_ = spaced;
  for (int i = 0; i < kLeadingSpace; ++i) {
    empty(spaced, start);
    const NodeId next = node();
    byte(spaced, ' ', ' ', next);
    byte(spaced, '\n', '\n', next);
    spaced = next;
  }
  empty(spaced, start);
  const std::vector<bool> good = productive();
  const auto dead = [&](NodeId to) { return !good[static_cast<std::size_t>(to)]; };
  for (Automaton::Node& node : nodes_) {
    std::erase_if(node.edges, [&](const auto& edge) { return dead(edge.to); });
    std::erase_if(node.empty, dead);
    std::erase_if(node.calls, [&](const auto& call) { return dead(call.rule) || dead(call.to); });
  }
  out.start_ = start;
  out.nodes_ = std::move(nodes_);
  return good[static_cast<std::size_t>(start)];
}

}  // namespace pergola
