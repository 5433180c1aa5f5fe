#pragma once

#include <memory>
#include <string>

#include "text/json_node.h"

namespace pergola {

/// Rewrites text before it is cut into words.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  /// Rewrites `text` (valid UTF-8, stays so). `at_origin` tells whether the text starts where the user's text starts;
  /// it is cleared when the start is removed.
  virtual void apply(std::string& text, bool& at_origin) const = 0;
};

/// Reads the "normalizer" of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace,
/// ByteLevel, Sequence. Throws Error naming any other type.
std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node);

}  // namespace pergola
