#include "engine/vocabulary_rules.h"

#include <set>

namespace pergola {

std::vector<std::int32_t> stop_tokens(const GenerationConfig& generation, const Tokenizer& tokenizer) {
  std::set<std::int32_t> ids(generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (const auto id = tokenizer.eos_id()) ids.insert(*id);
  return {ids.begin(), ids.end()};
}

std::shared_ptr<const TokenMask> sampled_tokens(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  TokenMask mask(vocab_size);
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    if (!tokenizer.has_token(static_cast<std::int32_t>(id))) mask.forbid(id);
  }
  return std::make_shared<const TokenMask>(std::move(mask));
}

}  // namespace pergola
