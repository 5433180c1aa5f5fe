#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/generation_config.h"
#include "text/token_mask.h"
#include "text/tokenizer.h"

namespace pergola {

/// Ids that end a text, sorted: what generation_config.json and config.json call so, and tokenizer_config.json's
/// eos_token. One file alone is not enough: some name the end of a document but not the end of a turn.
std::vector<std::int32_t> stop_tokens(const GenerationConfig& generation, const Tokenizer& tokenizer);

/// Ids of the model's vocabulary that have a token: rows beyond the tokenizer's words are padding and are never
/// sampled.
std::shared_ptr<const TokenMask> sampled_tokens(const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace pergola
