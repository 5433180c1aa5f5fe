#include "text/pieces.h"

#include <algorithm>

namespace pergola {
namespace {

struct Segment {
  Span span;
  bool is_match;
};

// All of the text as alternating matches and gaps.
void cover(std::size_t size, const std::vector<Span>& matches, bool invert, std::vector<Segment>& segments) {
  segments.clear();
  std::size_t done = 0;
  for (const Span& match : matches) {
    if (done < match.begin) segments.push_back({{done, match.begin}, invert});
    segments.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) segments.push_back({{done, size}, invert});
}

// Joins neighbouring segments as the behaviour says, in place.
void merge(std::vector<Segment>& segments, SplitBehavior behavior) {
  std::size_t kept = 0;
  bool previous_match = false;
  const auto step = [&](const Segment& segment, auto&& extend) {
    const bool joins = behavior == SplitBehavior::contiguous ? segment.is_match == previous_match
                                                             : segment.is_match && !previous_match;
    previous_match = segment.is_match;
    if (joins && kept > 0) {
      extend(segments[kept - 1], segment);
    } else {
      segments[kept++] = segment;
    }
  };
  if (behavior == SplitBehavior::merged_with_next) {
    std::reverse(segments.begin(), segments.end());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      step(Segment(segments[i]), [](Segment& last, const Segment& next) { last.span.begin = next.span.begin; });
    }
  } else {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      step(Segment(segments[i]), [](Segment& last, const Segment& next) { last.span.end = next.span.end; });
    }
  }
  segments.resize(kept);
  if (behavior == SplitBehavior::merged_with_next) std::reverse(segments.begin(), segments.end());
}

}  // namespace

void split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert,
                  const std::function<void(std::string_view text, std::vector<Span>& matches)>& find_all) {
  std::vector<Pieces::Piece> list;
  std::vector<Span> matches;
  std::vector<Segment> segments;
  for (const Pieces::Piece& piece : pieces.list) {
    matches.clear();
    find_all(pieces.view(piece), matches);
    cover(piece.end - piece.begin, matches, invert, segments);
    if (behavior != SplitBehavior::removed && behavior != SplitBehavior::isolated) merge(segments, behavior);
    for (const Segment& segment : segments) {
      if (segment.span.begin == segment.span.end || (behavior == SplitBehavior::removed && segment.is_match)) continue;
      list.push_back({piece.begin + segment.span.begin, piece.begin + segment.span.end,
                      piece.at_origin && segment.span.begin == 0});
    }
  }
  pieces.list = std::move(list);
}

void rewrite_pieces(Pieces& pieces, const std::function<void(const Pieces::Piece& piece, std::string& out)>& rewrite) {
  std::string text;
  text.reserve(pieces.text.size() * 5 / 4);
  for (Pieces::Piece& piece : pieces.list) {
    const std::size_t begin = text.size();
    rewrite(piece, text);
    piece.begin = begin;
    piece.end = text.size();
  }
  pieces.text = std::move(text);
}

}  // namespace pergola
