// The methods of Python's strings, dicts and lists that templates call.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

std::size_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return text_length(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// str.split and str.rsplit on white space.
Items split_words(std::string_view text, std::int64_t most, bool from_right) {
  Items words;
  const auto is_space_at = [&](std::size_t at) { return is_python_space(utf8_next(text, at)); };
  text = strip(text, nullptr, !from_right, from_right);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(words.size()) == most) {
      words.emplace_back(strip(text, nullptr, from_right, !from_right));
      break;
    }
    if (from_right) {
      std::size_t start = text.size();
      while (start > 0 && !is_space_at(utf8_previous(text, start))) start = utf8_previous(text, start);
      words.emplace_back(text.substr(start));
      text = strip(text.substr(0, start), nullptr, false, true);
    } else {
      std::size_t end = 0;
      while (end < text.size() && !is_space_at(end)) end += utf8_length(text[end]);
      words.emplace_back(text.substr(0, end));
      text = strip(text.substr(end), nullptr, true, false);
    }
  }
  if (from_right) std::reverse(words.begin(), words.end());
  std::erase_if(words, [](const Value& word) { return word.string()->empty(); });
  return words;
}

Items split_at(std::string_view text, const std::string& separator, std::int64_t most, bool from_right) {
  if (separator.empty()) throw Error("empty separator");
  Items parts;
  for (;;) {
    const bool full = most >= 0 && static_cast<std::int64_t>(parts.size()) == most;
    const std::size_t at = full ? std::string_view::npos : from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.emplace_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(const std::string& text, const Arguments& arguments, bool from_right) {
  const Bound bound(arguments, "split", {"sep", "maxsplit"});
  const std::string* separator = bound.string(0);
  const std::int64_t most = bound.integer(1, -1);
  return Value::list(separator == nullptr ? split_words(text, most, from_right)
                                          : split_at(text, *separator, most, from_right));
}

Value split_lines(const std::string& text, const Arguments& arguments) {
  const bool keep = Bound(arguments, "splitlines", {"keepends"}).flag(0, false);
  Items lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = utf8_next(text, at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(std::string_view(text).substr(begin, (keep ? at : start) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(std::string_view(text).substr(begin));
  return Value::list(std::move(lines));
}

// The part of `text` that find, count, startswith and endswith with start and end look at; `offset` is its first
// character.
std::string_view part_of(const std::string& text, const Bound& bound, std::int64_t& offset) {
  offset = 0;
  if (bound.get(1) == nullptr && bound.get(2) == nullptr) return text;
  const std::vector<std::size_t> offsets = character_offsets(text);
  const auto size = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto clip = [&](std::int64_t index) {
    return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const std::int64_t begin = clip(bound.integer(1, 0));
  const std::int64_t end = std::max(begin, clip(bound.integer(2, size)));
  offset = begin;
  const std::size_t from = offsets[static_cast<std::size_t>(begin)];
  return std::string_view(text).substr(from, offsets[static_cast<std::size_t>(end)] - from);
}

const std::string& required_text(const Bound& bound, std::string_view method) {
  const std::string* text = bound.string(0);
  if (text == nullptr) fail({}, "{}() needs a string, not None", method);
  return *text;
}

Value find(const std::string& text, const std::string& method, const Arguments& arguments) {
  const Bound bound(arguments, method, {"sub", "start", "end"}, 1);
  const std::string& part = required_text(bound, method);
  std::int64_t offset = 0;
  const std::string_view where = part_of(text, bound, offset);
  const std::size_t at = method.starts_with('r') ? where.rfind(part) : where.find(part);
  if (at != std::string_view::npos) return offset + static_cast<std::int64_t>(text_length(where.substr(0, at)));
  if (method.ends_with("index")) throw Error("substring not found");
  return std::int64_t{-1};
}

Value starts_or_ends(const std::string& text, const std::string& method, const Arguments& arguments) {
  const Bound bound(arguments, method, {"prefix", "start", "end"}, 1);
  std::int64_t offset = 0;
  const std::string_view where = part_of(text, bound, offset);
  const Value& given = *bound.get(0);
  const Items single{given};
  const Items& candidates = given.is_tuple() ? *given.items() : single;
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      fail({}, "{} first arg must be str or a tuple of str, not {}", method, given.type_name());
    }
    const std::string& part = *candidate.string();
    if (method == "startswith" ? where.starts_with(part) : where.ends_with(part)) return true;
  }
  return false;
}

Value replace(const std::string& text, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  const std::string& old = required_text(bound, "replace");
  const std::string* with = bound.string(1);
  if (with == nullptr) throw Error("replace() needs a string, not None");
  std::int64_t left = bound.integer(2, -1);
  budget.spend_text(count_of(text, old) * with->size());
  std::string out;
  std::size_t at = 0;
  if (old.empty()) {  // before every character and at the end
    for (; at < text.size() && left != 0; --left) {
      out += *with;
      const std::size_t size = utf8_length(text[at]);
      out += text.substr(at, size);
      at += size;
    }
    if (left != 0) out += *with;
    return out + text.substr(at);
  }
  for (std::size_t found = text.find(old); found != std::string::npos && left != 0;
       found = text.find(old, at), --left) {
    out.append(text, at, found - at);
    out += *with;
    at = found + old.size();
  }
  return out.append(text, at);
}

template <typename Accept>
bool all_characters(std::string_view text, Accept accept) {
  for (std::size_t at = 0; at < text.size();) {
    if (!accept(utf8_next(text, at))) return false;
  }
  return !text.empty();
}

bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

Value join(const std::string& separator, const Arguments& arguments, Budget& budget) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(*Bound(arguments, "join", {"iterable"}, 1).get(0), budget)) {
    if (!item.is_string()) fail({}, "sequence item: expected str instance, {} found", item.type_name());
    if (!first) out += separator;
    first = false;
    out += *item.string();
    budget.spend_text(separator.size() + item.string()->size());
  }
  return out;
}

Value strip_method(const std::string& text, const std::string& method, const Arguments& arguments) {
  const std::string* characters = Bound(arguments, method, {"chars"}).string(0);
  return strip(text, characters, method != "rstrip", method != "lstrip");
}

Value string_method(const std::string& text, const std::string& name, const Arguments& arguments, Budget& budget) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip_method(text, name, arguments);
  if (name == "split" || name == "rsplit") return split(text, arguments, name == "rsplit");
  if (name == "startswith" || name == "endswith") return starts_or_ends(text, name, arguments);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") return find(text, name, arguments);
  if (name == "replace") return replace(text, arguments, budget);
  if (name == "join") return join(text, arguments, budget);
  if (name == "splitlines") return split_lines(text, arguments);
  if (name == "count") {
    const Bound bound(arguments, name, {"sub", "start", "end"}, 1);
    std::int64_t offset = 0;
    return static_cast<std::int64_t>(count_of(part_of(text, bound, offset), required_text(bound, name)));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Bound bound(arguments, name, {"affix"}, 1);
    const std::string& affix = required_text(bound, name);
    const std::string_view view = text;
    if (name == "removeprefix") return view.starts_with(affix) ? view.substr(affix.size()) : view;
    return view.ends_with(affix) ? view.substr(0, view.size() - affix.size()) : view;
  }
  const Bound none(arguments, name, {});
  if (name == "upper") return to_upper(text);
  if (name == "lower") return to_lower(text);
  if (name == "title") return to_title(text, true);
  if (name == "capitalize") return to_capitalized(text);
  if (name == "isspace") return all_characters(text, is_python_space);
  if (name == "isdigit") return all_characters(text, is_ascii_digit);
  if (name == "isupper") return to_upper(text) == text && to_lower(text) != text;
  if (name == "islower") return to_lower(text) == text && to_upper(text) != text;
  fail({}, "the method str.{} is not supported", name);
}

Value pair_list(const Dict& dict) {
  Items pairs;
  for (const auto& [key, value] : dict.entries()) pairs.push_back(Value::tuple({key, value}));
  return Value::list(std::move(pairs));
}

Value dict_method(const Value& self, const std::string& name, const Arguments& arguments, Budget& budget) {
  const Dict& dict = *self.dict();
  budget.spend(name == "get" ? 1 : dict.size());
  if (name == "get") {
    const Bound bound(arguments, name, {"key", "default"}, 1);
    if (const Value* found = dict.find(*bound.get(0))) return *found;
    return bound.get(1) == nullptr ? Value(None{}) : *bound.get(1);
  }
  const Bound none(arguments, name, {});
  if (name == "items") return pair_list(dict);
  if (name == "copy") return self;
  Items items;
  if (name == "keys" || name == "values") {
    for (const auto& [key, value] : dict.entries()) items.push_back(name == "keys" ? key : value);
    return Value::list(std::move(items));
  }
  fail({}, "the method dict.{} would change the dict", name);
}

Value sequence_method(const Value& self, const std::string& name, const Arguments& arguments, Budget& budget) {
  const Items& items = *self.items();
  budget.spend(items.size());
  if (name == "count" || name == "index") {
    const Bound bound(arguments, name, {"value"}, 1);
    if (name == "count") {
      return static_cast<std::int64_t>(std::count(items.begin(), items.end(), *bound.get(0)));
    }
    const auto found = std::find(items.begin(), items.end(), *bound.get(0));
    if (found == items.end()) fail({}, "{} is not in list", to_repr(*bound.get(0)));
    return static_cast<std::int64_t>(found - items.begin());
  }
  const Bound none(arguments, name, {});
  if (name == "copy") return self;
  fail({}, "the method {}.{} would change the {}", self.type_name(), name, self.type_name());
}

Value loop_method(const Value& self, const std::string& name, const Arguments& arguments) {
  const Loop& loop = *self.loop();
  if (name == "cycle") {
    if (arguments.positional.empty()) throw Error("no items for cycling given");
    return arguments.positional[loop.index0 % arguments.positional.size()];
  }
  const Value now = Value::tuple(arguments.positional);
  const bool changed = loop.last_checked == nullptr || !(*loop.last_checked == now);
  loop.last_checked = std::make_shared<const Value>(now);
  return changed;
}

constexpr std::array<std::string_view, 24> kStringMethods = {
    "strip", "lstrip", "rstrip",     "split",        "rsplit",       "startswith", "endswith", "find",
    "rfind", "index",  "rindex",     "replace",      "join",         "splitlines", "count",    "upper",
    "lower", "title",  "capitalize", "removeprefix", "removesuffix", "isspace",    "isdigit",  "isupper"};
constexpr std::array<std::string_view, 11> kDictMethods = {"get", "items",   "keys",   "values",     "copy",    "clear",
                                                           "pop", "popitem", "update", "setdefault", "fromkeys"};
constexpr std::array<std::string_view, 10> kListMethods = {"count",  "index", "copy",   "append",  "extend",
                                                           "insert", "pop",   "remove", "reverse", "sort"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.is_string()) return among(kStringMethods, name) || name == "islower";
  if (value.is_dict()) return among(kDictMethods, name);
  if (value.is_list()) return among(kListMethods, name) || name == "clear";
  if (value.is_tuple()) return name == "count" || name == "index";
  if (value.loop() != nullptr) return name == "cycle" || name == "changed";
  return false;
}

Value call_method(const Value& value, const std::string& name, const Arguments& arguments, Budget& budget) {
  if (const std::string* text = value.string()) {
    budget.spend_text(text->size());
    Value result = string_method(*text, name, arguments, budget);
    if (const std::string* made = result.string()) budget.spend_text(made->size());
    if (const Items* made = result.items()) budget.spend(made->size());
    return result;
  }
  if (value.is_dict()) return dict_method(value, name, arguments, budget);
  if (value.items() != nullptr) return sequence_method(value, name, arguments, budget);
  return loop_method(value, name, arguments);
}

}  // namespace pergola::jinja
