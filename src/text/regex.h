#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pergola {

/// A part of a text, in bytes.
struct Span {
  std::size_t begin;
  std::size_t end;
};

/// A regular expression as tokenizer.json writes them: Oniguruma syntax over Unicode, run by PCRE2. Copies share the
/// compiled program; matching is safe from several threads.
class Regex {
 public:
  /// Compiles `pattern`. Throws Error naming `where` when it does not compile or uses a construct whose meaning PCRE2
  /// cannot give.
  Regex(std::string_view pattern, const Where& where);

  /// Appends every match in `text` (valid UTF-8), left to right, not overlapping, empty ones included. Throws Error
  /// when a match takes too many steps.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace pergola
