#pragma once

#include <memory>

#include "text/json_node.h"
#include "text/pieces.h"

namespace pergola {

/// Cuts text into the words that the model tokenizes one by one.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

/// Reads the "pre_tokenizer" of tokenizer.json: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace,
/// WhitespaceSplit, CharDelimiterSplit, Sequence. Throws Error naming any other type.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node);

/// What Metaspace does at the start of a text.
enum class PrependScheme { always, first, never };

/// Reads "prepend_scheme" of a Metaspace object, or its older spelling "add_prefix_space".
PrependScheme read_prepend_scheme(const JsonNode& node);

/// Reads a member that must be one character.
std::string read_character(const JsonNode& node);

}  // namespace pergola
