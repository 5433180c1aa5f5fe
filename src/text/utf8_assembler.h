#pragma once

#include <string>
#include <string_view>

#include "text/utf8.h"

namespace pergola {

/// Turns bytes that arrive in any portions into valid UTF-8: holds back a sequence that is not complete yet (3 bytes at
/// most) and puts U+FFFD in place of what is invalid. The result does not depend on the portions.
class Utf8Assembler {
 public:
  /// Takes `bytes` and appends to `out` the characters that are complete now.
  void push(std::string_view bytes, std::string& out) {
    held_ += bytes;
    std::size_t at = 0;
    while (at < held_.size()) {
      const Utf8Step step = utf8_step(held_, at);
      if (step.kind == Utf8Step::Kind::incomplete) break;
      out +=
          step.kind == Utf8Step::Kind::valid ? std::string_view(held_).substr(at, step.length) : replacement_character;
      at += step.length;
    }
    held_.erase(0, at);
  }

  /// No more bytes come: appends U+FFFD when a sequence was cut off.
  void finish(std::string& out) {
    if (!held_.empty()) out += replacement_character;
    held_.clear();
  }

 private:
  std::string held_;
};

}  // namespace pergola
