#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pergola {

/// Unicode code points as ranges [first, last], sorted and apart.
using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

/// Sorts ranges and joins those that touch.
CodePoints normalized(CodePoints ranges);
/// All code points (without surrogates) that are not in `ranges`.
CodePoints complement(const CodePoints& ranges);
CodePoints intersection(const CodePoints& a, const CodePoints& b);

/// The byte that stands before a special token's text, so that ordinary text cannot spell it: no UTF-8 has it.
inline constexpr char kSpecialMark = '\xFF';

/// A set of byte strings: nodes with byte edges, empty edges, and calls of rules, which may call themselves (a pushdown
/// automaton). Immutable.
class Automaton {
 public:
  struct Edge {
    std::uint8_t first;
    std::uint8_t last;
    std::int32_t to;
  };
  struct Call {
    std::int32_t rule;  ///< node where the rule starts
    std::int32_t to;    ///< node after it
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<std::int32_t> empty;
    std::vector<Call> calls;
    bool ends_rule = false;
  };

  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  std::size_t size() const { return nodes_.size(); }
  std::int32_t start() const { return start_; }
  /// Where matching starts when a little white space may come first.
  std::int32_t spaced_start() const { return spaced_start_; }

 private:
  friend class AutomatonBuilder;
  std::vector<Node> nodes_;
  std::int32_t start_ = 0;
  std::int32_t spaced_start_ = 0;
};

/// Builds an automaton piece by piece: each function takes the node where a piece starts and returns the one where it
/// ends.
class AutomatonBuilder {
 public:
  using NodeId = std::int32_t;
  /// Most nodes; beyond it Error is thrown.
  static constexpr std::size_t kMaxNodes = 400'000;

  NodeId node();
  void empty(NodeId from, NodeId to) { at(from).empty.push_back(to); }
  void byte(NodeId from, unsigned char first, unsigned char last, NodeId to);

  NodeId text(NodeId from, std::string_view text);
  /// A mark of a chat format, spelled as text or as a special token.
  NodeId mark(NodeId from, std::string_view text);
  /// One of `texts`.
  NodeId choice(NodeId from, const std::vector<std::string>& texts);
  /// One code point of `set`, in UTF-8.
  NodeId one_of(NodeId from, const CodePoints& set);
  void one_of(NodeId from, const CodePoints& set, NodeId to);
  /// Any UTF-8 text without `end`, and then `end`, which is ASCII.
  NodeId text_until(NodeId from, std::string_view end);
  /// A rule, by the node that start_rule() gave.
  NodeId call(NodeId from, NodeId rule);

  /// A rule's first node; give its last one to end_rule().
  NodeId start_rule() { return node(); }
  void end_rule(NodeId end) { at(end).ends_rule = true; }

  /// The automaton of `start`. Removes what leads nowhere; returns false when no text is left at all.
  bool build(NodeId start, Automaton& out);

 private:
  Automaton::Node& at(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  void utf8_range(NodeId from, char32_t first, char32_t last, NodeId to);
  std::vector<bool> productive() const;

  std::vector<Automaton::Node> nodes_;
};

}  // namespace pergola
