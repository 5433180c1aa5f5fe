#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/sampling_rule.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_constraint.h"

namespace pergola {

class Tokenizer;

/// The grammars of recent requests together with the masks that were found for them: the next request with the same
/// schema does not start anew. Safe to use from several threads.
class GrammarCache {
 public:
  static constexpr std::size_t kMostGrammars = 32;

  GrammarCache(const Tokenizer& tokenizer, std::int64_t vocab_size, std::vector<std::int32_t> stop_tokens);

  /// Makes rules that keep an answer to the grammar, or what comes behind `start_after` in it. `key` stands for the
  /// grammar.
  std::function<std::unique_ptr<SamplingRule>()> rule(const Grammar& grammar, std::string key, std::string start_after);

 private:
  std::shared_ptr<CompiledGrammar> compiled(const Grammar& grammar, std::string key);

  GrammarVocabulary vocabulary_;
  std::vector<std::int32_t> stop_tokens_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<CompiledGrammar>>> recent_;  ///< the last used first
};

}  // namespace pergola
