#include "text/grammar/regex_grammar.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using NodeId = AutomatonBuilder::NodeId;

constexpr int kMaxDepth = 100;      // of groups
constexpr int kMaxRepeat = 10'000;  // of one quantifier

struct Part {
  enum class Kind : std::uint8_t { set, sequence, alternatives, repeat } kind;
  CodePoints set;
  std::vector<Part> parts;
  int least = 0;
  int most = -1;  // -1: no limit
};

const CodePoints kDigit = {{'0', '9'}};
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                           {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const std::string& name) : text_(pattern), name_(name) {}

  /// An alternative of the whole pattern and what its anchors say.
  struct Anchored {
    Part part;
    bool at_start = false;
    bool at_end = false;
  };

  std::vector<Anchored> run() {
    if (!is_valid_utf8(text_)) reject("it is not UTF-8");
    std::vector<Anchored> result;
    do {
      Anchored alternative;
      alternative.at_start = take('^');
      alternative.part = sequence(0);
      alternative.at_end = take('$');
      result.push_back(std::move(alternative));
    } while (take('|'));
    if (at_ < text_.size())
      reject(text_[at_] == ')' ? "a ')' without '('" : "'^' and '$' are only supported at the ends");
    return result;
  }

 private:
  [[noreturn]] void reject(const std::string& what) const {
    fail({.field = name_}, "the regular expression {} is not supported: {} (at byte {})", in_quotes(text_), what, at_);
  }

  bool ends() const { return at_ == text_.size(); }
  bool at(char c) const { return !ends() && text_[at_] == c; }
  bool take(char c) { return at(c) && (++at_, true); }

  Part alternatives(int depth) {
    if (depth > kMaxDepth) reject("groups are nested too deep");
    Part result{.kind = Part::Kind::alternatives};
    do {
      result.parts.push_back(sequence(depth));
    } while (take('|'));
    return result;
  }

  Part sequence(int depth) {
    Part result{.kind = Part::Kind::sequence};
    while (!ends() && !at('|') && !at(')') && !at('$') && !at('^')) {
      Part part = atom(depth);
      result.parts.push_back(quantified(std::move(part)));
    }
    return result;
  }

  Part atom(int depth) {
    if (take('(')) {
      if (take('?')) {
        if (!take(':')) reject("only plain groups and (?: ) are supported");
      }
      Part group = alternatives(depth + 1);
      if (!take(')')) reject(ends() ? "a group has no end" : "'^' and '$' are only supported at the ends");
      return group;
    }
    Part part{.kind = Part::Kind::set};
    if (take('[')) {
      part.set = character_class();
    } else if (take('.')) {
      part.set = complement(kLineEnds);
    } else if (take('\\')) {
      part.set = escape(false);
    } else {
      if (at('*') || at('+') || at('?') || at('{') || at('}') || at(']')) reject("a character that must be escaped");
      const char32_t c = utf8_next(text_, at_);
      part.set = {{c, c}};
    }
    return part;
  }

  Part quantified(Part part) {
    int least = 0;
    int most = -1;
    if (take('*')) {
      least = 0;
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (at('{')) {
      braces(least, most);
    } else {
      return part;
    }
    take('?');  // lazy: the same texts
    if (at('*') || at('+') || at('?') || at('{')) reject("a quantifier follows another");
    Part result{.kind = Part::Kind::repeat, .least = least, .most = most};
    result.parts.push_back(std::move(part));
    return result;
  }

  int number() {
    int value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > kMaxRepeat)
      reject(fmt::format("a count must be 0 to {}", kMaxRepeat));
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  void braces(int& least, int& most) {
    take('{');
    least = number();
    most = least;
    if (take(',')) most = at('}') ? -1 : number();
    if (!take('}')) reject("a '}' is missing");
    if (most >= 0 && most < least) reject("counts are the wrong way round");
  }

  CodePoints character_class() {
    const bool negated = take('^');
    CodePoints set;
    while (!take(']')) {
      if (ends()) reject("a character class has no end");
      const CodePoints first = class_member();
      const bool range = at('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range) {
        set.insert(set.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      const CodePoints last = class_member();
      if (first.size() != 1 || last.size() != 1 || first[0].first != first[0].second ||
          last[0].first != last[0].second || first[0].first > last[0].first) {
        reject("a range in a character class is wrong");
      }
      set.emplace_back(first[0].first, last[0].first);
    }
    return negated ? complement(set) : normalized(std::move(set));
  }

  CodePoints class_member() {
    if (take('\\')) return escape(true);
    if (at('[')) reject("'[' in a character class must be escaped");
    const char32_t c = utf8_next(text_, at_);
    return {{c, c}};
  }

  CodePoints escape(bool in_class) {
    if (ends()) reject("it ends with a backslash");
    const char c = text_[at_++];
    const auto single = [](char32_t value) { return CodePoints{{value, value}}; };
    switch (c) {
      case 'd':
        return kDigit;
      case 'D':
        return complement(kDigit);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
        return single(hex(2));
      case 'u':
        return single(hex(4));
      case 'b':
        if (in_class) return single('\b');
        break;
      default:
        break;
    }
    const bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (letter || (c & 0x80) != 0) reject(fmt::format("the escape \\{}", c));
    return single(static_cast<unsigned char>(c));
  }

  char32_t hex(std::size_t digits) {
    unsigned value = 0;
    const char* const begin = text_.data() + at_;
    if (at_ + digits > text_.size()) reject("an escape is cut off");
    const auto [end, error] = std::from_chars(begin, begin + digits, value, 16);
    if (error != std::errc() || end != begin + digits || (value >= 0xD800 && value < 0xE000)) {
      reject("an escape is no character");
    }
    at_ += digits;
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

class RegexEmitter {
 public:
  RegexEmitter(AutomatonBuilder& builder, RegexText style) : b_(builder), style_(style) {}

  NodeId emit(NodeId from, const Part& part) {
    switch (part.kind) {
      case Part::Kind::set: {
        const NodeId to = b_.node();
        character(from, part.set, to);
        return to;
      }
      case Part::Kind::sequence:
        for (const Part& inner : part.parts) from = emit(from, inner);
        return from;
      case Part::Kind::alternatives: {
        const NodeId to = b_.node();
        for (const Part& inner : part.parts) b_.empty(emit(from, inner), to);
        return to;
      }
      case Part::Kind::repeat:
        return repeat(from, part);
    }
    return from;
  }

  NodeId anything(NodeId from) {
    const NodeId loop = b_.node();
    b_.empty(from, loop);
    character(loop, {{0, 0x10FFFF}}, loop);
    return loop;
  }

 private:
  void character(NodeId from, const CodePoints& set, NodeId to) {
    if (style_ == RegexText::json) {
      json_character(b_, from, set, to);
    } else {
      b_.one_of(from, set, to);
    }
  }

  NodeId repeat(NodeId from, const Part& part) {
    const Part& inner = part.parts[0];
    // Each piece starts on a node of its own, so that a loop cannot leak into what stands before it.
    for (int i = 0; i < part.least; ++i) from = emit(fresh(from), inner);
    const NodeId end = b_.node();
    if (part.most < 0) {
      const NodeId loop = fresh(from);
      b_.empty(emit(loop, inner), loop);
      b_.empty(loop, end);
      return end;
    }
    for (int i = part.least; i < part.most; ++i) {
      b_.empty(from, end);
      from = emit(fresh(from), inner);
    }
    b_.empty(from, end);
    return end;
  }

  NodeId fresh(NodeId from) {
    const NodeId node = b_.node();
    b_.empty(from, node);
    return node;
  }

  AutomatonBuilder& b_;
  RegexText style_;
};

}  // namespace

void json_character(AutomatonBuilder& builder, NodeId from, const CodePoints& set, NodeId to) {
  const CodePoints escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  builder.one_of(from, intersection(set, complement(escaped)), to);
  const CodePoints special = intersection(set, escaped);
  if (special.empty()) return;
  const NodeId backslash = builder.node();
  builder.byte(from, '\\', '\\', backslash);
  std::optional<NodeId> unicode;
  for (const auto& [first, last] : special) {
    for (char32_t c = first; c <= last; ++c) {
      static constexpr std::string_view kCharacters = "\"\\\b\f\n\r\t";
      static constexpr std::string_view kNames = "\"\\bfnrt";
      if (const std::size_t place = kCharacters.find(static_cast<char>(c)); place != std::string_view::npos) {
        const auto name = static_cast<unsigned char>(kNames[place]);
        builder.byte(backslash, name, name, to);
        continue;
      }
      if (!unicode) unicode = builder.text(backslash, "u00");
      const NodeId low = builder.text(*unicode, c < 0x10 ? "0" : "1");
      const char digit = "0123456789abcdef"[c % 16];
      builder.byte(low, static_cast<unsigned char>(digit), static_cast<unsigned char>(digit), to);
    }
  }
}

NodeId regex_text(AutomatonBuilder& builder, NodeId from, std::string_view pattern, RegexText style, bool search,
                  const std::string& name) {
  RegexEmitter emitter(builder, style);
  const NodeId end = builder.node();
  for (const RegexParser::Anchored& alternative : RegexParser(pattern, name).run()) {
    NodeId at = builder.node();
    builder.empty(from, at);
    if (search && !alternative.at_start) at = emitter.anything(at);
    at = emitter.emit(at, alternative.part);
    if (search && !alternative.at_end) at = emitter.anything(at);
    builder.empty(at, end);
  }
  return end;
}

}  // namespace pergola
