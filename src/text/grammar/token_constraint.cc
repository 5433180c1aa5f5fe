#include "text/grammar/token_constraint.h"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/grammar/matcher.h"
#include "text/grammar/token_trie.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

using Configuration = Matcher::Configuration;
using Words = std::vector<std::uint64_t>;

constexpr std::size_t kMaxConfigurations = 32'768;            // of about a kilobyte
constexpr std::size_t kMaxMaskBytes = std::size_t{64} << 20;  // of one grammar

void allow(std::span<std::uint64_t> words, std::int32_t token) {
  words[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
}

/// Masks of a matcher's configurations. A mask is found once: most of it from the local configuration, which all places
/// in a text share that are in the same rule (a string, say), and the rest from the few tokens that go beyond the rule.
class MaskCache {
 public:
  MaskCache(std::shared_ptr<const Automaton> automaton, GrammarVocabulary vocabulary)
      : matcher(std::move(automaton)), vocabulary_(std::move(vocabulary)) {}

  const Words& mask(Configuration configuration) {
    if (const auto found = masks_.find(configuration); found != masks_.end()) return found->second;
    Words words;
    const Matcher::Local local = matcher.local(configuration);
    if (local.inner == Matcher::kDead) {
      words = empty_words();
      walk(0, configuration, words, nullptr);
    } else {
      const LocalMask& inner = local_mask(local.inner);
      words = inner.words;
      for (const std::uint32_t exit : inner.exits) walk(exit, local.outer, words, nullptr);
    }
    bytes_ += words.size() * sizeof(std::uint64_t);
    return masks_.emplace(configuration, std::move(words)).first->second;
  }

  /// Frees memory when there is too much; nothing that mask() gave and no configuration is valid afterwards, if it
  /// returns true.
  bool trim() {
    if (bytes_ > kMaxMaskBytes) {
      masks_.clear();
      local_masks_.clear();
      bytes_ = 0;
    }
    if (matcher.size() < kMaxConfigurations) return false;
    masks_.clear();
    local_masks_.clear();
    bytes_ = 0;
    matcher.clear();
    return true;
  }

  const TokenBytesTrie& trie() const { return vocabulary_.trie(); }

  Matcher matcher;

 private:
  /// Tokens that stay inside a rule, and the places of the trie where the rule may have ended but tokens go on.
  struct LocalMask {
    Words words;
    std::vector<std::uint32_t> exits;
  };

  Words empty_words() const { return Words(static_cast<std::size_t>(trie().vocab_size() + 63) / 64, 0); }

  const LocalMask& local_mask(Configuration inner) {
    if (const auto found = local_masks_.find(inner); found != local_masks_.end()) return found->second;
    LocalMask mask{empty_words(), {}};
    walk(0, inner, mask.words, &mask.exits);
    bytes_ += mask.words.size() * sizeof(std::uint64_t) + mask.exits.size() * sizeof(std::uint32_t);
    return local_masks_.emplace(inner, std::move(mask)).first->second;
  }

  // Allows every token below `start` that the matcher can take from `from`. Leaves out subtrees at their first byte
  // that it cannot.
  void walk(std::uint32_t start, Configuration from, Words& words, std::vector<std::uint32_t>* exits) {
    const std::span<const TokenBytesTrie::Node> nodes = trie().nodes();
    path_.clear();
    path_.emplace_back(nodes[start].end, from);
    for (std::uint32_t node = start + 1; node < nodes[start].end;) {
      while (path_.back().first <= node) path_.pop_back();
      const Configuration after = matcher.next(path_.back().second, nodes[node].byte);
      if (after == Matcher::kDead) {
        node = nodes[node].end;
        continue;
      }
      for (const std::int32_t token : trie().tokens_at(node)) allow(words, token);
      const bool inner_node = nodes[node].end > node + 1;
      if (inner_node && exits != nullptr && matcher.ends_rule(after)) exits->push_back(node);
      if (inner_node) path_.emplace_back(nodes[node].end, after);
      ++node;
    }
  }

  GrammarVocabulary vocabulary_;
  std::unordered_map<Configuration, Words> masks_;
  std::unordered_map<Configuration, LocalMask> local_masks_;
  std::size_t bytes_ = 0;
  std::vector<std::pair<std::uint32_t, Configuration>> path_;
};

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, std::int64_t vocab_size)
    : GrammarVocabulary(token_bytes(tokenizer, vocab_size)) {}

GrammarVocabulary::GrammarVocabulary(std::span<const std::string> token_bytes)
    : trie_(std::make_shared<const TokenBytesTrie>(token_bytes)) {}

struct CompiledGrammar::Parts {
  Parts(Grammar from, GrammarVocabulary vocabulary, std::vector<std::int32_t> stops)
      : cache(from.automaton(), std::move(vocabulary)), stop_tokens(std::move(stops)) {
    std::erase_if(stop_tokens, [&](std::int32_t id) { return id < 0 || id >= cache.trie().vocab_size(); });
  }

  std::mutex mutex;
  MaskCache cache;
  std::vector<std::int32_t> stop_tokens;
  std::uint64_t generation = 0;  ///< of configurations
};

CompiledGrammar::CompiledGrammar(Grammar grammar, GrammarVocabulary vocabulary, std::vector<std::int32_t> stop_tokens)
    : parts_(new Parts(std::move(grammar), std::move(vocabulary), std::move(stop_tokens))) {}
CompiledGrammar::~CompiledGrammar() = default;

struct TokenConstraint::State {
  enum class Phase : std::uint8_t { waiting, active, ended };

  std::shared_ptr<CompiledGrammar> grammar;
  std::string start_after;
  Phase phase = Phase::active;
  std::string waited;  ///< the end of the text while waiting
  std::string text;    ///< what the grammar has taken
  std::uint64_t generation = 0;
  Configuration at = Matcher::kDead;
  TokenMask mask{0};

  CompiledGrammar::Parts& parts() const { return *grammar->parts_; }

  // The configuration now; found again by reading the text once more when they were forgotten. The mutex is held.
  Configuration current() {
    CompiledGrammar::Parts& shared = parts();
    if (shared.cache.trim()) ++shared.generation;
    if (at != Matcher::kDead && generation == shared.generation) return at;
    generation = shared.generation;
    at = shared.cache.matcher.start(!start_after.empty());
    for (const char c : text) at = shared.cache.matcher.next(at, static_cast<unsigned char>(c));
    return at;
  }

  // Takes bytes; false, and nothing changed, when the grammar does not. The mutex is held.
  bool take(std::string_view bytes) {
    Configuration to = current();
    for (const char c : bytes) {
      to = parts().cache.matcher.next(to, static_cast<unsigned char>(c));
      if (to == Matcher::kDead) return false;
    }
    at = to;
    text += bytes;
    return true;
  }

  bool is_stop(std::int32_t token) const {
    const auto& stops = parts().stop_tokens;
    return std::find(stops.begin(), stops.end(), token) != stops.end();
  }

  // A token while everything is allowed.
  bool wait(std::string_view bytes) {
    if (!bytes.empty() && bytes[0] == '\xFF') bytes.remove_prefix(1);
    const std::string seen = waited + std::string(bytes);
    const std::size_t mark = seen.find(start_after);
    if (mark == std::string::npos) {
      waited = seen.substr(seen.size() - std::min(seen.size(), start_after.size() - 1));
      return true;
    }
    const std::string rest = seen.substr(mark + start_after.size());
    phase = Phase::active;
    if (take(rest)) return true;
    phase = Phase::waiting;
    return false;
  }
};

TokenConstraint::TokenConstraint(std::shared_ptr<CompiledGrammar> grammar, std::string start_after)
    : state_(new State{.grammar = std::move(grammar), .start_after = std::move(start_after)}) {
  if (!state_->start_after.empty()) state_->phase = State::Phase::waiting;
  state_->mask = TokenMask(state_->parts().cache.trie().vocab_size(), false);
  const std::scoped_lock lock(state_->parts().mutex);
  state_->current();  // throws for a grammar that has no text
}

TokenConstraint::~TokenConstraint() = default;
TokenConstraint::TokenConstraint(TokenConstraint&&) noexcept = default;
TokenConstraint& TokenConstraint::operator=(TokenConstraint&&) noexcept = default;

const TokenMask* TokenConstraint::mask() {
  if (state_->phase == State::Phase::waiting) return nullptr;
  TokenMask& mask = state_->mask;
  CompiledGrammar::Parts& parts = state_->parts();
  const std::scoped_lock lock(parts.mutex);
  bool ends = state_->phase == State::Phase::ended;
  if (ends) {
    mask.forbid_all();
  } else {
    const Configuration now = state_->current();
    const Words& words = parts.cache.mask(now);
    std::copy(words.begin(), words.end(), mask.words().begin());
    // A stop token may have bytes that the text could spell, and a text may have come to a place that no token fits.
    ends = parts.cache.matcher.accepts(now);
    const bool stuck = std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; });
    ends = ends || stuck;
    for (const std::int32_t id : parts.stop_tokens) mask.forbid(id);
  }
  if (ends) {
    for (const std::int32_t id : parts.stop_tokens) mask.allow(id);
  }
  return &mask;
}

bool TokenConstraint::accept(std::int32_t token) {
  CompiledGrammar::Parts& parts = state_->parts();
  if (token < 0 || token >= parts.cache.trie().vocab_size()) return false;
  const std::scoped_lock lock(parts.mutex);
  const std::string_view bytes = parts.cache.trie().bytes_of(token);
  if (state_->phase == State::Phase::waiting) return state_->wait(bytes);
  if (state_->is_stop(token)) {
    if (state_->phase != State::Phase::ended && !parts.cache.matcher.accepts(state_->current())) return false;
    state_->phase = State::Phase::ended;
    return true;
  }
  return state_->phase == State::Phase::active && !bytes.empty() && state_->take(bytes);
}

bool TokenConstraint::may_end() const {
  if (state_->phase != State::Phase::active) return state_->phase == State::Phase::ended;
  const std::scoped_lock lock(state_->parts().mutex);
  return state_->parts().cache.matcher.accepts(state_->current());
}

bool TokenConstraint::finished() const {
  if (state_->phase != State::Phase::active) return state_->phase == State::Phase::ended;
  const std::scoped_lock lock(state_->parts().mutex);
  const Configuration now = state_->current();
  return state_->parts().cache.matcher.accepts(now) && !state_->parts().cache.matcher.continues(now);
}

}  // namespace pergola
