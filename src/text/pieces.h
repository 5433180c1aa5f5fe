#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace pergola {

/// A text on its way through the pre-tokenizers: a buffer and the pieces of it that are left, in order.
struct Pieces {
  struct Piece {
    std::size_t begin;
    std::size_t end;
    bool at_origin;  ///< starts where the user's text starts
  };
  std::string text;
  std::vector<Piece> list;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

/// What becomes of the matches that a text is split at, with the names of tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits every piece at the matches that `find_all(text, matches)` appends; `invert` splits at what lies between the
/// matches instead. Empty pieces vanish.
void split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert,
                  const std::function<void(std::string_view text, std::vector<Span>& matches)>& find_all);

/// Replaces the text of every piece by what `rewrite(piece, out)` appends to `out`.
void rewrite_pieces(Pieces& pieces, const std::function<void(const Pieces::Piece& piece, std::string& out)>& rewrite);

}  // namespace pergola
