#include "text/regex_syntax.h"

#include <fmt/ranges.h>

#include <cstdint>
#include <vector>

#include "text/utf8.h"

namespace pergola {
namespace {

// Items of a character class, in PCRE2's syntax with UCP.
//
// Unicode White_Space. PCRE2's own \s also takes U+180E, which stopped being a space in Unicode 6.3.
constexpr std::string_view white_space = R"(\x09-\x0d\x{85}\p{Z})";
// What Oniguruma calls a word character; PCRE2 leaves out marks and connectors.
constexpr std::string_view word =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// Outside of classes Oniguruma looks up the characters below 256 in another table, where superscripts and fractions are
// word characters too.
const std::string word_alone = std::string(word) + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view hex_digit = "0-9A-Fa-f";

struct Name {
  std::string_view ours;
  std::string_view theirs;
};

// General categories by their long names.
constexpr Name categories[] = {
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
    {"lc", "L&"},
};

// Properties that PCRE2 knows by the same name. Any other name is taken for a script.
constexpr std::string_view properties[] = {
    "any",
    "c",
    "cc",
    "cf",
    "cn",
    "co",
    "cs",
    "l",
    "ll",
    "lm",
    "lo",
    "lt",
    "lu",
    "m",
    "mc",
    "me",
    "mn",
    "n",
    "nd",
    "nl",
    "no",
    "p",
    "pc",
    "pd",
    "pe",
    "pf",
    "pi",
    "po",
    "ps",
    "s",
    "sc",
    "sk",
    "sm",
    "so",
    "z",
    "zl",
    "zp",
    "zs",
    "alphabetic",
    "ascii",
    "dash",
    "emoji",
    "emojipresentation",
    "emojimodifier",
    "emojimodifierbase",
    "emojicomponent",
    "extendedpictographic",
    "hexdigit",
    "ideographic",
    "lowercase",
    "math",
    "unifiedideograph",
    "uppercase",
    "whitespace",
};

constexpr Name posix_classes[] = {
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"space", white_space},
    {"upper", R"(\p{Uppercase})"},
    {"word", word},
    {"xdigit", hex_digit},
};

std::string set_of(std::string_view items, bool negated) {
  return fmt::format("[{}{}]", negated ? "^" : "", items);
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

class Translator {
 public:
  Translator(std::string_view pattern, const Where& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (!at_end()) element();
    close_groups();
    return std::move(out_);
  }

 private:
  static constexpr int deepest = 200;

  bool at_end() const { return at_ == pattern_.size(); }
  bool looking_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  char take_char() {
    if (at_end()) refuse("ends too early");
    return pattern_[at_++];
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(where_, "regular expression {} {}", in_quotes(pattern_), why);
  }

  // One element outside of classes: an atom, a quantifier, a parenthesis or a bar.
  void element() {
    const std::size_t start = out_.size();
    const char c = pattern_[at_];
    if (c == '\\') {
      ++at_;
      escape();
    } else if (c == '[') {
      ++at_;
      out_ += character_class();
    } else if (c == '(') {
      open_group();
      return;
    } else if (c == ')') {
      close_group();
      return;
    } else if (c == '{' && interval()) {
      return;
    } else {
      out_ += c;
      ++at_;
      if (c == '*' || c == '+' || c == '?' || c == '|' || c == '^' || c == '$') return;
      while (!at_end() && (static_cast<unsigned char>(pattern_[at_]) & 0xC0u) == 0x80u) out_ += pattern_[at_++];
    }
    atom_ = start;
  }

  // An option group that stands alone, "(?i)", reaches to the end of the group around it, over bars too: (?i)a|b is
  // (?i:a|b).
  struct Group {
    std::size_t start;
    int options;
  };

  void open_group() {
    const std::size_t start = out_.size();
    if (static_cast<int>(groups_.size()) >= deepest) refuse("is nested too deeply");
    ++at_;
    if (take("?#")) {
      while (take_char() != ')') {
      }
      return;
    }
    out_ += '(';
    if (take("?~")) refuse("uses the absence operator, which is not supported");
    if (looking_at("?")) {
      const std::size_t flags = pattern_.find_first_not_of("imx-", at_ + 1);
      if (flags != std::string_view::npos && flags > at_ + 1 && (pattern_[flags] == ')' || pattern_[flags] == ':')) {
        out_ += '?';
        // Oniguruma's m is what Perl calls s.
        for (++at_; at_ < flags; ++at_) out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
        ++at_;
        out_ += ':';
        if (pattern_[flags] == ')') {
          options_ += 1;
          return;
        }
      }
    }
    groups_.push_back({start, options_});
    options_ = 0;
  }

  void close_group() {
    if (groups_.empty()) refuse("has a parenthesis too many");
    ++at_;
    out_.append(static_cast<std::size_t>(options_) + 1, ')');
    options_ = groups_.back().options;
    atom_ = groups_.back().start;
    groups_.pop_back();
  }

  void close_groups() {
    if (!groups_.empty()) refuse("has a parenthesis that is not closed");
    out_.append(static_cast<std::size_t>(options_), ')');
  }

  // {n}, {n,}, {n,m}, {,m}. A + behind it is a second quantifier, not the possessive mark that PCRE2 takes it for.
  bool interval() {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view inner = pattern_.substr(at_ + 1, end - at_ - 1);
    if (inner.empty() || inner == "," || inner.find_first_not_of("0123456789,") != std::string_view::npos) return false;
    at_ = end + 1;
    out_ += fmt::format("{{{}{}}}", inner[0] == ',' ? "0" : "", inner);
    if (looking_at("+")) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return true;
  }

  void escape() {
    const char c = take_char();
    switch (c) {
      case 's':
        out_ += set_of(white_space, false);
        return;
      case 'S':
        out_ += set_of(white_space, true);
        return;
      case 'w':
        out_ += set_of(word_alone, false);
        return;
      case 'W':
        out_ += set_of(word_alone, true);
        return;
      case 'h':
        out_ += set_of(hex_digit, false);
        return;
      case 'H':
        out_ += set_of(hex_digit, true);
        return;
      case 'b':
        out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word_alone);
        return;
      case 'B':
        out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word_alone);
        return;
      case 'p':
      case 'P':
        out_ += property(c == 'P');
        return;
      case 'd':
      case 'D':
      case 'R':
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'k':
      case 'g':
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
      case '8':
      case '9':
        out_ += '\\';
        out_ += c;
        return;
      default:
        --at_;
        append_literal(out_, escaped_character());
    }
  }

  // The character of an escape that stands for one, behind its backslash; the same inside and outside of classes.
  char32_t escaped_character() {
    std::size_t next = at_;
    if (at_end()) refuse("ends with a backslash");
    const char32_t c = utf8_next(pattern_, next);
    at_ = next;
    switch (c) {
      case 't':
        return 0x09;
      case 'n':
        return 0x0A;
      case 'v':
        return 0x0B;
      case 'f':
        return 0x0C;
      case 'r':
        return 0x0D;
      case 'a':
        return 0x07;
      case 'e':
        return 0x1B;
      case '0':
        return 0x00;
      case 'u':
        return number(4, 16);
      case 'x':
        if (take("{")) {
          const char32_t value = number(8, 16);
          if (!take("}")) refuse("has an \\x{ without its }");
          return value;
        }
        return number(2, 16);
      default:
        if (c < 0x80 && is_letter_or_digit(static_cast<char>(c)))
          refuse(fmt::format("uses \\{}, which is not supported", static_cast<char>(c)));
        return c;
    }
  }

  char32_t number(int most_digits, char32_t base) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most_digits && !at_end(); ++digits, ++at_) {
      const char c = pattern_[at_];
      const int digit = c >= '0' && c <= '9'                     ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                 : -1;
      if (digit < 0) break;
      value = value * base + static_cast<char32_t>(digit);
    }
    if (digits == 0 || value > 0x10FFFF) refuse("has a character number that is not one");
    return value;
  }

  static void append_literal(std::string& out, char32_t c) {
    if (c < 0x80 && is_letter_or_digit(static_cast<char>(c))) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(c));
    }
  }

  // What follows \p or \P.
  std::string property(bool negated) {
    if (!take("{")) refuse("has a \\p without {");
    if (take("^")) negated = !negated;
    std::string name;
    for (char c = take_char(); c != '}'; c = take_char()) {
      if (c == ' ' || c == '_' || c == '-') continue;
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', property_name(name));
  }

  std::string property_name(const std::string& name) const {
    for (const Name& category : categories) {
      if (category.ours == name) return std::string(category.theirs);
    }
    for (const std::string_view property : properties) {
      if (property == name) return name;
    }
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string::npos)
      refuse(fmt::format("uses property {}, which is not supported", name));
    return "sc:" + name;  // PCRE2's bare script names mean the script extensions
  }

  // A class behind its [, as an expression that matches one character. Oniguruma's classes can hold classes and
  // intersections (&&), so the parts that are not plain items become alternatives and look-aheads.
  std::string character_class() {
    if (++class_depth_ > deepest) refuse("is nested too deeply");
    const bool negated = take("^");
    std::string items;
    std::vector<std::string> alternatives;
    std::vector<std::string> intersected;
    const auto finish_part = [&] {
      if (!items.empty() || alternatives.empty())
        alternatives.insert(alternatives.begin(), items.empty() ? "(?!)" : set_of(items, false));
      std::string part =
          alternatives.size() == 1 ? alternatives[0] : fmt::format("(?:{})", fmt::join(alternatives, "|"));
      intersected.push_back(std::move(part));
      items.clear();
      alternatives.clear();
    };
    bool first = true;
    while (first || !looking_at("]")) {
      if (at_end()) refuse("has a [ without its ]");
      if (take("&&")) {
        finish_part();
      } else {
        class_element(items, alternatives, first);
      }
      first = false;
    }
    ++at_;
    --class_depth_;
    if (intersected.empty() && alternatives.empty()) return set_of(items, negated);
    finish_part();
    std::string expression;
    for (std::size_t i = 1; i < intersected.size(); ++i) expression += fmt::format("(?={})", intersected[i]);
    expression += intersected[0];
    return negated ? fmt::format("(?:(?!{})(?s:.))", expression) : fmt::format("(?:{})", expression);
  }

  void class_element(std::string& items, std::vector<std::string>& alternatives, bool first) {
    if (take("[:")) {
      posix_class(items, alternatives);
    } else if (take("[")) {
      alternatives.push_back(character_class());
    } else if (looking_at("\\") && class_escape(items, alternatives)) {
    } else if (!first && looking_at("-") && !looking_at("-]")) {
      refuse("has a - in a class that is neither a range nor at an end");
    } else {
      range(items);
    }
  }

  // A character or a range of them.
  void range(std::string& items) {
    const char32_t low = class_character();
    append_literal(items, low);
    if (!looking_at("-") || looking_at("-]") || looking_at("-&&")) return;
    ++at_;
    items += '-';
    append_literal(items, class_character());
  }

  char32_t class_character() {
    if (take("\\")) return take("b") ? 0x08 : escaped_character();
    if (at_end()) refuse("has a [ without its ]");
    return utf8_next(pattern_, at_);
  }

  // Takes an escape that stands for a set of characters; false when it is something else.
  bool class_escape(std::string& items, std::vector<std::string>& alternatives) {
    if (at_ + 1 == pattern_.size()) refuse("ends with a backslash");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's':
        items += white_space;
        break;
      case 'S':
        items += R"(\S\x{180e})";
        break;
      case 'w':
        items += word;
        break;
      case 'W':
        alternatives.push_back(set_of(word, true));
        break;
      case 'h':
        items += hex_digit;
        break;
      case 'H':
        alternatives.push_back(set_of(hex_digit, true));
        break;
      case 'd':
        items += R"(\d)";
        break;
      case 'D':
        items += R"(\D)";
        break;
      case 'p':
      case 'P':
        at_ += 2;
        items += property(c == 'P');
        return true;
      default:
        return false;
    }
    at_ += 2;
    return true;
  }

  void posix_class(std::string& items, std::vector<std::string>& alternatives) {
    const bool negated = take("^");
    const std::size_t end = pattern_.find(":]", at_);
    const std::string_view name = pattern_.substr(at_, end == std::string_view::npos ? end : end - at_);
    for (const Name& known : posix_classes) {
      if (known.ours != name) continue;
      at_ = end + 2;
      if (negated) {
        alternatives.push_back(set_of(known.theirs, true));
      } else {
        items += known.theirs;
      }
      return;
    }
    refuse(fmt::format("uses [:{}:], which is not supported", name.substr(0, 20)));
  }

  std::string_view pattern_;
  const Where& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;  // where the last atom starts in out_
  int options_ = 0;       // option groups that are open until the group around them ends
  int class_depth_ = 0;
  std::vector<Group> groups_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, const Where& where) {
  return Translator(pattern, where).run();
}

}  // namespace pergola
