#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/token_mask.h"

namespace pergola {

class Tokenizer;
class TokenBytesTrie;

/// The bytes of every token of a vocabulary, arranged for masks. Made once a model; immutable; copies share it.
class GrammarVocabulary {
 public:
  /// `vocab_size` is the model's, which may be larger than the tokenizer's.
  GrammarVocabulary(const Tokenizer& tokenizer, std::int64_t vocab_size);
  /// From bytes by token id; an empty string is never allowed.
  explicit GrammarVocabulary(std::span<const std::string> token_bytes);

  const TokenBytesTrie& trie() const { return *trie_; }

 private:
  std::shared_ptr<const TokenBytesTrie> trie_;
};

/// A grammar together with a vocabulary, and the masks found so far. Requests with the same grammar share one, so that
/// each state's mask is computed once. Safe to use from several threads.
class CompiledGrammar {
 public:
  /// `stop_tokens` are allowed where the text may end.
  CompiledGrammar(Grammar grammar, GrammarVocabulary vocabulary, std::vector<std::int32_t> stop_tokens);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

 private:
  friend class TokenConstraint;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Keeps one text to a grammar, token by token.
class TokenConstraint {
 public:
  /// `start_after`: everything is allowed until this text was written, and only what comes behind it is kept to the
  /// grammar (white space before is allowed too): the mark that closes the reasoning, for a model that starts inside
  /// it.
  explicit TokenConstraint(std::shared_ptr<CompiledGrammar> grammar, std::string start_after = {});
  ~TokenConstraint();
  TokenConstraint(TokenConstraint&&) noexcept;
  TokenConstraint& operator=(TokenConstraint&&) noexcept;

  /// Which tokens may come next; null while all may. Apply it to the logits before sampling. Valid until the next call.
  const TokenMask* mask();
  /// Takes the token that was chosen. Returns false, and changes nothing, when the grammar does not allow it.
  [[nodiscard]] bool accept(std::int32_t token);
  /// The text is complete and nothing may follow: only stop tokens are left in the mask.
  bool finished() const;
  /// The text may end here.
  bool may_end() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pergola
