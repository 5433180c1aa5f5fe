#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/grammar/automaton.h"

namespace pergola {

/// Runs an automaton over bytes. What may come next is a *configuration*: a set of nodes, each with the stack of rules
/// that it is in. Configurations are made when they are first reached and kept, so that a step that was taken before is
/// one look-up. Not safe to use from several threads.
class Matcher {
 public:
  using Configuration = std::int32_t;
  static constexpr Configuration kDead = -1;

  explicit Matcher(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

  /// Where a text starts; `spaced`: behind a little white space.
  Configuration start(bool spaced);
  /// After one more byte; kDead when no text goes on so.
  Configuration next(Configuration from, unsigned char byte);

  /// The text may end here.
  bool accepts(Configuration configuration) const { return at(configuration).accepts; }
  /// The text may go on.
  bool continues(Configuration configuration) const { return !at(configuration).items.empty(); }

  /// A configuration that differs from others only in the rules around: what can be said about the next bytes as long
  /// as the innermost rule that all its nodes are in has not ended.
  struct Local {
    Configuration inner;  ///< without what is around; ends_rule() tells where the rule ends
    Configuration outer;  ///< where the text goes on once the rule has ended
  };
  /// Nothing (inner == kDead) when the nodes have no rule in common.
  Local local(Configuration configuration);
  /// Only for configurations that local() gave, and those after them: the rule may have ended here.
  bool ends_rule(Configuration configuration) const { return at(configuration).pops; }

  /// Configurations that were made; all are forgotten by clear().
  std::size_t size() const { return configurations_.size(); }
  void clear();

 private:
  using FrameId = std::int32_t;
  static constexpr FrameId kNone = -1;     ///< below the outermost rule
  static constexpr FrameId kUnknown = -2;  ///< below a local configuration
  static constexpr int kMaxDepth = 400;    ///< of rules in rules: deeper calls are not possible

  struct Frame {
    std::int32_t return_to;
    FrameId below;
    int depth;
  };
  struct Item {
    std::int32_t node;
    FrameId frame;
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  struct State {
    std::vector<Item> items;
    bool accepts = false;
    bool pops = false;
    std::unique_ptr<std::array<Configuration, 256>> next;
    bool has_local = false;
    Local local{kDead, kDead};
  };
  struct Hash {
    std::size_t operator()(const std::vector<std::uint64_t>& key) const;
  };

  const State& at(Configuration configuration) const {
    return configurations_[static_cast<std::size_t>(configuration)];
  }
  State& at(Configuration configuration) { return configurations_[static_cast<std::size_t>(configuration)]; }
  const Frame& frame(FrameId id) const { return frames_[static_cast<std::size_t>(id)]; }
  int depth_of(FrameId id) const { return id < 0 ? 0 : frame(id).depth; }

  FrameId push(std::int32_t return_to, FrameId below);
  Configuration closed(std::vector<Item> work);
  Configuration intern(std::vector<Item> items, bool accepts, bool pops);
  FrameId common_frame(const std::vector<Item>& items) const;
  FrameId above(FrameId id, FrameId base);

  std::shared_ptr<const Automaton> automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, FrameId> frame_ids_;
  std::deque<State> configurations_;
  std::unordered_map<std::vector<std::uint64_t>, Configuration, Hash> ids_;
};

}  // namespace pergola
