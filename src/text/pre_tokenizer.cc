#include "text/pre_tokenizer.h"

#include <functional>
#include <optional>
#include <utility>

#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace pergola {
namespace {

class Split : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, behavior_, invert_,
                 [&](std::string_view text, std::vector<Span>& matches) { pattern_.find_all(text, matches); });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at every single character for which the predicate holds.
class SplitAtCharacters : public PreTokenizer {
 public:
  SplitAtCharacters(std::function<bool(char32_t)> predicate, SplitBehavior behavior)
      : predicate_(std::move(predicate)), behavior_(behavior) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, behavior_, false, [&](std::string_view text, std::vector<Span>& matches) {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t start = at;
        if (predicate_(utf8_next(text, at))) matches.push_back({start, at});
      }
    });
  }

 private:
  std::function<bool(char32_t)> predicate_;
  SplitBehavior behavior_;
};

// Runs of word characters and runs of other visible characters; white space goes.
class Whitespace : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    split_pieces(pieces, SplitBehavior::removed, true, [](std::string_view text, std::vector<Span>& matches) {
      enum class Kind { space, word, other };
      Kind previous = Kind::space;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t start = at;
        const char32_t c = utf8_next(text, at);
        const Kind kind = is_word(c) ? Kind::word : is_white_space(c) ? Kind::space : Kind::other;
        if (kind != Kind::space && kind == previous) {
          matches.back().end = at;
        } else if (kind != Kind::space) {
          matches.push_back({start, at});
        }
        previous = kind;
      }
    });
  }
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, const Where& where) : add_prefix_space_(add_prefix_space) {
    if (use_regex)
      words_.emplace(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", where);
  }

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rewrite_pieces(pieces, [&](const Pieces::Piece& piece, std::string& out) {
        if (pieces.text[piece.begin] != ' ') out += ' ';
        out += pieces.view(piece);
      });
    }
    if (words_) {
      split_pieces(pieces, SplitBehavior::isolated, false,
                   [&](std::string_view text, std::vector<Span>& matches) { words_->find_all(text, matches); });
    }
    rewrite_pieces(pieces,
                   [&](const Pieces::Piece& piece, std::string& out) { append_byte_level(out, pieces.view(piece)); });
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> words_;
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](const Pieces::Piece& piece, std::string& out) {
      const std::string_view text = pieces.view(piece);
      const bool prepends = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && piece.at_origin);
      if (prepends && !text.starts_with(' ') && !text.starts_with(replacement_)) out += replacement_;
      for (const char c : text) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
    if (!split_) return;
    split_pieces(pieces, SplitBehavior::merged_with_next, false,
                 [&](std::string_view text, std::vector<Span>& matches) {
                   for (std::size_t at = text.find(replacement_); at != std::string_view::npos;
                        at = text.find(replacement_, at + replacement_.size())) {
                     matches.push_back({at, at + replacement_.size()});
                   }
                 });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}

  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string& name = node.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail(node.where(), "split behavior {} is not known", in_quotes(name));
}

std::unique_ptr<PreTokenizer> read_digits(const JsonNode& node) {
  const bool individual = node.get_bool("individual_digits", false);
  return std::make_unique<SplitAtCharacters>(is_numeric,
                                             individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}

std::unique_ptr<PreTokenizer> read_delimiter(const JsonNode& node) {
  const std::string delimiter = read_character(node.require("delimiter"));
  std::size_t at = 0;
  const char32_t code_point = utf8_next(delimiter, at);
  return std::make_unique<SplitAtCharacters>([code_point](char32_t c) { return c == code_point; },
                                             SplitBehavior::removed);
}

std::unique_ptr<PreTokenizer> read_sequence(const JsonNode& node) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const JsonNode& part : node.require("pretokenizers").items()) parts.push_back(read_pre_tokenizer(part));
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node) {
  const std::string& type = node.require("type").string();
  if (type == "Sequence") return read_sequence(node);
  if (type == "Split") {
    return std::make_unique<Split>(Pattern(node.require("pattern")), read_behavior(node.require("behavior")),
                                   node.get_bool("invert", false));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(node.get_bool("add_prefix_space", true), node.get_bool("use_regex", true),
                                       node.where());
  }
  if (type == "Metaspace") {
    return std::make_unique<Metaspace>(read_character(node.require("replacement")), read_prepend_scheme(node),
                                       node.get_bool("split", true));
  }
  if (type == "Digits") return read_digits(node);
  if (type == "Punctuation") {
    const SplitBehavior behavior =
        node.has("behavior") ? read_behavior(node.require("behavior")) : SplitBehavior::isolated;
    return std::make_unique<SplitAtCharacters>(is_punctuation, behavior);
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<SplitAtCharacters>(is_white_space, SplitBehavior::removed);
  if (type == "CharDelimiterSplit") return read_delimiter(node);
  fail(node.require("type").where(), "pre-tokenizer {} is not supported", in_quotes(type));
}

PrependScheme read_prepend_scheme(const JsonNode& node) {
  if (!node.has("prepend_scheme"))
    return node.get_bool("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  const JsonNode scheme = node.require("prepend_scheme");
  if (scheme.string() == "always") return PrependScheme::always;
  if (scheme.string() == "first") return PrependScheme::first;
  if (scheme.string() == "never") return PrependScheme::never;
  fail(scheme.where(), "prepend scheme {} is not known", in_quotes(scheme.string()));
}

std::string read_character(const JsonNode& node) {
  const std::string& text = node.string();
  if (text.empty() || utf8_length(text[0]) != text.size())
    fail(node.where(), "must be one character, is {}", in_quotes(text));
  return text;
}

}  // namespace pergola
