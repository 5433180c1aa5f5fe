#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

namespace pergola::testing {

/// Whether `text` is one of the grammar's texts, read byte by byte.
inline bool matches(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar.automaton());
  Matcher::Configuration at = matcher.start(false);
  for (const char c : text) {
    at = matcher.next(at, static_cast<unsigned char>(c));
    if (at == Matcher::kDead) return false;
  }
  return matcher.accepts(at);
}

}  // namespace pergola::testing
