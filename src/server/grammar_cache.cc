#include "server/grammar_cache.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

class GrammarRule final : public SamplingRule {
 public:
  GrammarRule(std::shared_ptr<CompiledGrammar> grammar, std::string start_after)
      : constraint_(std::move(grammar), std::move(start_after)) {}

  void apply(std::span<float> logits) override {
    if (const TokenMask* mask = constraint_.mask()) mask->apply(logits);
  }
  void accept(std::int32_t token) override {
    if (!constraint_.accept(token)) fail({}, "the grammar does not allow token {} that was sampled", token);
  }

 private:
  TokenConstraint constraint_;
};

}  // namespace

GrammarCache::GrammarCache(const Tokenizer& tokenizer, std::int64_t vocab_size, std::vector<std::int32_t> stop_tokens)
    : vocabulary_(tokenizer, vocab_size), stop_tokens_(std::move(stop_tokens)) {}

std::shared_ptr<CompiledGrammar> GrammarCache::compiled(const Grammar& grammar, std::string key) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(recent_, key, [](const auto& entry) -> const std::string& { return entry.first; });
  if (found != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, found);
    return found->second;
  }
  recent_.emplace_front(std::move(key), std::make_shared<CompiledGrammar>(grammar, vocabulary_, stop_tokens_));
  if (recent_.size() > kMostGrammars) recent_.pop_back();
  return recent_.front().second;
}

std::function<std::unique_ptr<SamplingRule>()> GrammarCache::rule(const Grammar& grammar, std::string key,
                                                                  std::string start_after) {
  return [shared = compiled(grammar, std::move(key)), start_after = std::move(start_after)] {
    return std::make_unique<GrammarRule>(shared, start_after);
  };
}

}  // namespace pergola
