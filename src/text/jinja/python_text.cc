#include "text/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

void check_depth(int depth) {
  if (depth > kMaxValueDepth) fail({}, "a value is nested deeper than {} levels", kMaxValueDepth);
}

void append_hex(std::string& out, char32_t c, int digits) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%0*x", digits, static_cast<unsigned>(c));
  out += text.data();
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c == 0x7F || c < 0xA1) return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_repr_of_string(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = utf8_next(text, at);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      out += text.substr(start, at - start);
    } else if (c < 0x100) {
      out += "\\x";
      append_hex(out, c, 2);
    } else {
      out += c < 0x10000 ? "\\u" : "\\U";
      append_hex(out, c, c < 0x10000 ? 4 : 8);
    }
  }
  out += quote;
}

void append_repr(std::string& out, const Value& value, int depth);

void append_sequence(std::string& out, const Items& items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], depth + 1);
  }
}

void append_entries(std::string& out, const Dict& dict, int depth) {
  bool first = true;
  for (const auto& [key, item] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key, depth + 1);
    out += ": ";
    append_repr(out, item, depth + 1);
  }
}

void append_repr(std::string& out, const Value& value, int depth) {
  check_depth(depth);
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (const std::string* text = value.string()) {
    append_repr_of_string(out, *text);
  } else if (const Items* items = value.items()) {
    out += value.is_list() ? '[' : '(';
    append_sequence(out, *items, depth);
    if (value.is_tuple() && items->size() == 1) out += ',';
    out += value.is_list() ? ']' : ')';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    append_entries(out, *dict, depth);
    out += '}';
  } else {
    out += to_text(value);
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int depth) {
    check_depth(depth);
    if (const std::string* text = value.string()) return write_string(*text);
    if (const Items* items = value.items()) return write_items(*items, depth);
    if (const Dict* dict = value.dict()) return write_dict(*dict, depth);
    out += scalar(value);
  }

  std::string out;

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_boolean()) return value.integer() != 0 ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_undefined()) throw Error(value.why_undefined());
    if (!value.is_float()) fail({}, "Object of type {} is not JSON serializable", value.type_name());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return float_text(value.number());
  }

  void write_string(std::string_view text) {
    out += '"';
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      const char32_t c = utf8_next(text, at);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kNames = "\"\\nrtbf";
      if (const std::size_t place = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
          place != std::string_view::npos) {
        out += '\\';
        out += kNames[place];
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
        write_escaped(c);
      } else {
        out += text.substr(start, at - start);
      }
    }
    out += '"';
  }

  void write_escaped(char32_t c) {
    if (c >= 0x10000) {
      write_escaped(0xD800 + ((c - 0x10000) >> 10));
      c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    out += "\\u";
    append_hex(out, c, 4);
  }

  void new_line(int depth) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }

  void write_items(const Items& items, int depth) {
    if (items.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    out += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.size() == 0) {
      out += "{}";
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return to_text(a->first) < to_text(b->first); });
    }
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth + 1);
      const Value& key = entries[i]->first;
      write_string(key.is_string() ? *key.string() : scalar(key));
      out += style_.key_separator;
      write(entries[i]->second, depth + 1);
    }
    new_line(depth);
    out += '}';
  }

  const JsonStyle& style_;
};

void append_mapped(std::string& out, char32_t c, bool upper) {
  if (upper && c == 0xDF) {
    out += "SS";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  utf8_append(out, static_cast<char32_t>(upper ? utf8proc_toupper(code) : utf8proc_tolower(code)));
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

std::string map_case(std::string_view text, bool upper) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_mapped(out, utf8_next(text, at), upper);
  return out;
}

// One conversion of percent_format: flags, width and precision as C writes them.
std::string convert(const std::string& spec, char conversion, const Value& value) {
  std::array<char, 512> buffer{};
  const auto print = [&](auto argument, const char* length) {
    const std::string format = spec + length + conversion;
    const int size = std::snprintf(buffer.data(), buffer.size(), format.c_str(), argument);
    if (size < 0 || static_cast<std::size_t>(size) >= buffer.size()) throw Error("a formatted number is too long");
    return std::string(buffer.data());
  };
  if (conversion == 's' || conversion == 'r') {
    if (spec.size() > 1) fail({}, "the format '{}{}' is not supported", spec, conversion);
    return conversion == 's' ? to_text(value) : to_repr(value);
  }
  if (!value.is_number()) fail({}, "%{} format: a number is required, not {}", conversion, value.type_name());
  if (conversion == 'd' || conversion == 'i' || conversion == 'x') {
    const double limit = 9.2e18;
    if (value.is_float() && !(std::abs(value.number()) < limit)) throw Error("a number is too large for %d");
    const std::int64_t whole = value.is_float() ? static_cast<std::int64_t>(value.number()) : value.integer();
    return print(static_cast<long long>(whole), "ll");
  }
  return print(value.number(), "");
}

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::scientific).ptr;
  const std::string text(buffer.data(), end);
  const std::size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) return text;  // to_chars and repr agree: 1e-05, 1.5e+16
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.integer() != 0 ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_float()) return float_text(value.number());
  if (const std::string* text = value.string()) return *text;
  if (value.items() != nullptr || value.dict() != nullptr) return to_repr(value);
  fail({}, "a {} cannot be printed", value.type_name());
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, const std::string* characters, bool left, bool right) {
  const auto stripped = [&](char32_t c) {
    if (characters == nullptr) return is_python_space(c);
    for (std::size_t at = 0; at < characters->size();) {
      if (utf8_next(*characters, at) == c) return true;
    }
    return false;
  };
  while (left && !text.empty()) {
    std::size_t at = 0;
    if (!stripped(utf8_next(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    const std::size_t start = utf8_previous(text, text.size());
    std::size_t at = start;
    if (!stripped(utf8_next(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string to_upper(std::string_view text) {
  return map_case(text, true);
}
std::string to_lower(std::string_view text) {
  return map_case(text, false);
}

std::string to_capitalized(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = utf8_length(text[0]);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string to_title(std::string_view text, bool at_every_non_letter) {
  static constexpr std::string_view kBreaks = "-({[<";  // beside white space, as Jinja's filter splits
  std::string out;
  bool start = true;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, at);
    append_mapped(out, c, start);
    if (at_every_non_letter) {
      start = !is_letter(c);
    } else {
      start = is_python_space(c) || (c < 0x80 && kBreaks.find(static_cast<char>(c)) != std::string_view::npos);
    }
  }
  return out;
}

std::size_t text_length(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

std::string percent_format(std::string_view format, const Value& arguments) {
  const Items single{arguments};
  const Items& values = arguments.is_tuple() ? *arguments.items() : single;
  std::size_t used = 0;
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    std::string spec = "%";
    while (++at < format.size() && std::string_view("0123456789.+- ").find(format[at]) != std::string_view::npos) {
      spec += format[at];
      if (spec.size() > 8) throw Error("a format is too long");
    }
    if (at == format.size()) throw Error("incomplete format");
    if (format[at] == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("srdifegx").find(format[at]) == std::string_view::npos) {
      fail({}, "the format '{}{}' is not supported", spec, format[at]);
    }
    if (used == values.size()) throw Error("not enough arguments for format string");
    out += convert(spec, format[at], values[used++]);
  }
  if (used < values.size() && arguments.is_tuple()) {
    throw Error("not all arguments converted during string formatting");
  }
  return out;
}

}  // namespace pergola::jinja
