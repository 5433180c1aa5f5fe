#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

// One kind of line end, and no line end at the end of the template.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& file) : source_(std::move(source)), file_(file) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  [[noreturn]] void reject(const std::string& what) const {
    fail({.file = fmt::format("{}:{}", file_, line_)}, "{}", what);
  }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  bool looking_at(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  void advance(std::size_t count) {
    for (; count > 0; --count, ++at_) {
      if (source_[at_] == '\n') ++line_;
    }
  }

  void skip_space() {
    while (at_ < source_.size()) {
      std::size_t next = at_;
      if (!is_python_space(utf8_next(source_, next))) break;
      advance(next - at_);
    }
  }

  // Text up to the next tag, then the tag.
  void text_and_tag() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag + 1 >= source_.size()) {
        add_data(std::string_view(source_).substr(at_));
        return advance(source_.size() - at_);
      }
      if (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    add_data(before_tag(at_, tag, sign, kind != '{'));
    advance(tag - at_ + 2);
    if (sign == '-' || sign == '+') advance(1);
    if (kind == '#') return comment();
    if (kind == '{') return expression(Kind::variable_begin, Kind::variable_end, "}}");
    if (raw_begins()) return raw();
    expression(Kind::block_begin, Kind::block_end, "%}");
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Kind::data, std::string(text));
  }

  // The text [begin, end) as it stands before a tag: '-' strips all white space, and a tag that is no variable takes
  // the blanks that alone stand before it on its line.
  std::string_view before_tag(std::size_t begin, std::size_t end, char sign, bool strips_line) const {
    const std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') return strip(text, nullptr, false, true);
    if (sign == '+' || !strips_line) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool starts_line = line > 0 || begin == 0 || source_[begin - 1] == '\n';
    if (!starts_line || text.find_first_not_of(" \t", line) != std::string_view::npos) return text;
    return text.substr(0, line);
  }

  // The end of a tag, where it stands: nothing (0 bytes) or its length with the white space that it takes along.
  std::size_t end_length(std::string_view end, bool trims_newline) const {
    const std::string_view rest = std::string_view(source_).substr(at_);
    const bool plus = rest.starts_with('+') && trims_newline;
    const bool minus = rest.starts_with('-');
    const std::size_t length = end.size() + (plus || minus ? 1 : 0);
    if (!rest.substr(plus || minus ? 1 : 0).starts_with(end)) return 0;
    if (minus) return length + (rest.size() - length - strip(rest.substr(length), nullptr, true, false).size());
    if (!plus && trims_newline && rest.size() > length && rest[length] == '\n') return length + 1;
    return length;
  }

  void comment() {
    while (at_ < source_.size()) {
      if (const std::size_t length = end_length("#}", true)) return advance(length);
      advance(1);
    }
    reject("a comment has no end");
  }

  // After "{%" and its sign: whether the tag is {% raw %}; steps behind it.
  bool raw_begins() {
    std::size_t at = at_;
    const auto skip = [&] {
      while (at < source_.size() && is_python_space(static_cast<unsigned char>(source_[at]))) ++at;
    };
    skip();
    if (!std::string_view(source_).substr(at).starts_with("raw")) return false;
    at += 3;
    skip();
    const std::size_t back = std::exchange(at_, at);
    const std::size_t length = end_length("%}", false);
    at_ = back;
    if (length == 0) return false;
    advance(at - at_ + length);
    return true;
  }

  void raw() {
    const std::size_t begin = at_;
    if (begin == source_.size()) return;  // as Jinja2: nothing is missing yet
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      std::size_t at = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      const auto skip = [&] {
        while (at < source_.size() && is_python_space(static_cast<unsigned char>(source_[at]))) ++at;
      };
      skip();
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at += 6;
      skip();
      const std::size_t back = std::exchange(at_, at);
      const std::size_t length = end_length("%}", true);
      at_ = back;
      if (length == 0) continue;
      add_data(before_tag(begin, tag, sign, true));
      return advance(at - at_ + length);
    }
    reject("a raw block has no end");
  }

  void expression(Kind begin_kind, Kind end_kind, std::string_view end) {
    add(begin_kind, "");
    std::vector<char> open;
    for (;;) {
      skip_space();
      if (at_ == source_.size()) reject("a tag has no end");
      if (open.empty()) {
        const std::size_t length = end_length(end, end_kind == Kind::block_end);
        if (length > 0) {
          add(end_kind, "");
          return advance(length);
        }
      }
      const char c = source_[at_];
      if (c == '"' || c == '\'') {
        string_literal(c);
      } else if (is_digit(c)) {
        number();
      } else if (is_name_byte(c)) {
        name();
      } else {
        op(open);
      }
    }
  }

  void name() {
    const std::size_t begin = at_;
    std::size_t end = at_;
    while (end < source_.size() && is_name_byte(source_[end])) ++end;
    add(Kind::name, source_.substr(begin, end - begin));
    advance(end - begin);
  }

  void number() {
    const std::size_t begin = at_;
    std::size_t end = at_;
    const auto digits = [&](auto accepts) {
      while (end < source_.size() && (accepts(source_[end]) || (source_[end] == '_' && end > begin))) ++end;
    };
    Kind kind = Kind::integer;
    const char second = begin + 1 < source_.size() && source_[begin] == '0' ? source_[begin + 1] : '\0';
    if (second == 'x' || second == 'X' || second == 'o' || second == 'O' || second == 'b' || second == 'B') {
      end += 2;
      digits([](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    } else {
      digits(is_digit);
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        kind = Kind::real;
        ++end;
        digits(is_digit);
      }
      if (end + 1 < source_.size() && (source_[end] | 0x20) == 'e') {
        const bool sign = source_[end + 1] == '+' || source_[end + 1] == '-';
        if (end + 1 + sign < source_.size() && is_digit(source_[end + 1 + sign])) {
          kind = Kind::real;
          end += 1 + sign;
          digits(is_digit);
        }
      }
    }
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    add(kind, text);
    advance(end - begin);
  }

  void op(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 28> operators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "",  ""};
    for (const std::string_view text : operators) {
      if (text.empty() || !looking_at(text)) continue;
      if (text == "(" || text == "[" || text == "{") open.push_back(text == "(" ? ')' : text == "[" ? ']' : '}');
      if (text == ")" || text == "]" || text == "}") {
        if (open.empty() || open.back() != text[0]) reject(fmt::format("unexpected '{}'", text));
        open.pop_back();
      }
      add(Kind::op, std::string(text));
      return advance(text.size());
    }
    reject(fmt::format("unexpected character {}",
                       in_quotes(std::string_view(source_).substr(at_, utf8_length(source_[at_])))));
  }

  // Escapes are Python's; an unknown one keeps its backslash.
  void string_literal(char quote) {
    std::string value;
    const int line = line_;
    advance(1);
    for (;;) {
      if (at_ == source_.size()) reject("a string has no end");
      const char c = source_[at_];
      advance(1);
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (at_ == source_.size()) reject("a string has no end");
      escape(value);
    }
    tokens_.push_back({Kind::string, std::move(value), line});
  }

  void escape(std::string& value) {
    static constexpr std::string_view kNames = "abfnrtv\\'\"\n";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at_];
    if (const std::size_t place = kNames.find(c); place != std::string_view::npos) {
      if (c != '\n') value += kValues[place];
      return advance(1);
    }
    if (c == 'x' || c == 'u' || c == 'U') return code_point(value, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if (c >= '0' && c <= '7') return octal(value);
    value += '\\';
  }

  void code_point(std::string& value, std::size_t digits) {
    unsigned code = 0;
    const char* const begin = source_.data() + at_ + 1;
    if (at_ + 1 + digits > source_.size()) reject("an escape in a string is cut off");
    const auto [end, error] = std::from_chars(begin, begin + digits, code, 16);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (error != std::errc() || end != begin + digits || code > 0x10FFFF || surrogate) {
      reject("an escape in a string is not a character");
    }
    utf8_append(value, code);
    advance(1 + digits);
  }

  void octal(std::string& value) {
    char32_t code = 0;
    for (int i = 0; i < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(source_[at_] - '0');
      advance(1);
    }
    utf8_append(value, code);
  }

  std::string source_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  if (!is_valid_utf8(source)) fail({.file = file}, "the template is not UTF-8");
  return Lexer(normalized(source), file).run();
}

}  // namespace pergola::jinja
