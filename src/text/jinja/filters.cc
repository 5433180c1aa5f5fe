#include "text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/jinja/tests.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

using Filter = Value (*)(const Value& value, const Arguments& arguments, Budget& budget);

constexpr std::int64_t kWidest = 1000;  // of an indentation

// value.a.b.0 for the attribute argument "a.b.0" of filters; numbers are indices.
Value path_of(const Value& value, const Value& path) {
  if (path.is_integer()) return subscript(value, path);
  if (!path.is_string()) fail({}, "an attribute must be a string or an integer, not {}", path.type_name());
  Value at = value;
  std::string_view rest = *path.string();
  for (;;) {
    const std::size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = !name.empty() && error == std::errc() && end == name.data() + name.size() && index >= 0;
    at = subscript(at, number ? Value(index) : Value(name));
    if (dot == std::string_view::npos) return at;
    rest = rest.substr(dot + 1);
  }
}

Value folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value(to_lower(*value.string())) : value;
}

// --- texts
// --------------------------------------------------------------------------------------------------------------

Value trim(const Value& value, const Arguments& arguments, Budget& budget) {
  const std::string text = to_text(value);
  budget.spend_text(text.size());
  return strip(text, Bound(arguments, "trim", {"chars"}).string(0), true, true);
}

Value escape(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "escape", {});
  std::string out;
  for (const char c : to_text(value)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  budget.spend_text(out.size());
  return out;
}

Value replace(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  Arguments texts{{to_text(*bound.get(0)), to_text(*bound.get(1))}, {}};
  if (bound.get(2) != nullptr && !bound.get(2)->is_none()) texts.positional.push_back(*bound.get(2));
  return call_method(to_text(value), "replace", texts, budget);
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "indent", {"width", "first", "blank"});
  std::string unit;
  if (bound.get(0) != nullptr && bound.get(0)->is_string()) {
    unit = *bound.get(0)->string();
  } else {
    const std::int64_t width = bound.integer(0, 4);
    if (width > kWidest) fail({}, "an indentation of {} is too wide", width);
    unit.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool blank = bound.flag(2, false);
  const Items lines = *call_method(to_text(value) + "\n", "splitlines", {}, budget).items();
  std::string out = bound.flag(1, false) ? unit : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = *lines[i].string();
    if (i > 0) {
      out += '\n';
      if (blank || !line.empty()) out += unit;
    }
    out += line;
    budget.spend_text(unit.size() + line.size());
  }
  return out;
}

Value join(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "join", {"d", "attribute"});
  const std::string separator = bound.get(0) == nullptr ? "" : to_text(*bound.get(0));
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value, budget)) {
    if (!first) out += separator;
    first = false;
    const std::size_t before = out.size();
    out += to_text(bound.get(1) == nullptr || bound.get(1)->is_none() ? item : path_of(item, *bound.get(1)));
    budget.spend_text(separator.size() + out.size() - before);
  }
  return out;
}

Value tojson(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false)};
  if (bound.get(1) != nullptr && !bound.get(1)->is_none()) {
    const std::int64_t indent = bound.integer(1, 0);
    if (indent > kWidest) fail({}, "an indentation of {} is too wide", indent);
    style.indent = static_cast<int>(std::max<std::int64_t>(indent, 0));
    style.item_separator = ",";
  }
  if (bound.get(2) != nullptr && !bound.get(2)->is_none()) {
    const Items* pair = bound.get(2)->items();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string()) {
      throw Error("tojson(): 'separators' must be two strings");
    }
    style.item_separator = *(*pair)[0].string();
    style.key_separator = *(*pair)[1].string();
  }
  std::string text = to_json(value, style);
  budget.spend_text(text.size());
  return text;
}

template <std::string (*map)(std::string_view)>
Value mapped_text(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "filter", {});
  const std::string text = to_text(value);
  budget.spend_text(text.size());
  return map(text);
}

std::string title_words(std::string_view text) {
  return to_title(text, false);
}

Value format(const Value& value, const Arguments& arguments, Budget& budget) {
  if (!arguments.keywords.empty()) throw Error("format() with names is not supported");
  std::string text = percent_format(to_text(value), Value::tuple(arguments.positional));
  budget.spend_text(text.size());
  return text;
}

// --- numbers
// ------------------------------------------------------------------------------------------------------------

std::optional<double> read_number(const std::string& text) {
  const std::string_view stripped = strip(text, nullptr, true, true);
  double number = 0;
  const char* const end = stripped.data() + stripped.size();
  const char* const begin = stripped.data() + (stripped.starts_with('+') ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (stripped.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

Value to_int(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound(arguments, "int", {"default", "base"});
  const Value otherwise = bound.get(0) == nullptr ? Value(std::int64_t{0}) : *bound.get(0);
  if (value.is_integer()) return value.integer();
  std::optional<double> number;
  if (value.is_float()) number = value.number();
  if (const std::string* text = value.string()) {
    const std::string_view stripped = strip(*text, nullptr, true, true);
    std::int64_t whole = 0;
    const char* const end = stripped.data() + stripped.size();
    const char* const begin = stripped.data() + (stripped.starts_with('+') ? 1 : 0);
    const auto [stop, error] =
        std::from_chars(begin, end, whole, static_cast<int>(std::clamp<std::int64_t>(bound.integer(1, 10), 2, 36)));
    if (!stripped.empty() && error == std::errc() && stop == end) return whole;
    number = read_number(*text);
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return otherwise;
  return static_cast<std::int64_t>(*number);
}

Value to_float(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound(arguments, "float", {"default"});
  if (value.is_number()) return value.number();
  if (const std::string* text = value.string()) {
    if (const auto number = read_number(*text)) return *number;
  }
  return bound.get(0) == nullptr ? Value(0.0) : *bound.get(0);
}

Value absolute(const Value& value, const Arguments& arguments, Budget&) {
  const Bound none(arguments, "abs", {});
  require_defined(value);
  if (!value.is_number()) fail({}, "bad operand type for abs(): '{}'", value.type_name());
  return value.number() < 0 ? negated(value) : value;
}

Value round(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound(arguments, "round", {"precision", "method"});
  if (!value.is_number()) fail({}, "round() needs a number, not {}", value.type_name());
  const std::int64_t precision = bound.integer(0, 0);
  if (std::abs(precision) > 15) throw Error("round(): the precision is out of range");
  const std::string method = bound.string(1) == nullptr ? "common" : *bound.string(1);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double number = value.number();
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  if (method != "common") throw Error("round(): 'method' must be common, ceil or floor");
  if (value.is_integer() && precision >= 0) return value;
  if (precision < 0) return std::nearbyint(number * scale) / scale;
  const std::string text = percent_format("%." + std::to_string(precision) + "f", number);  // exact, ties to even
  return *read_number(text);
}

// --- sequences
// ------------------------------------------------------------------------------------------------------------

Value first(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "first", {});
  const Items items = iterate(value, budget);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "last", {});
  const Items items = iterate(value, budget);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "reverse", {});
  if (value.is_string()) {
    const Value step(std::int64_t{-1});
    return slice(value, nullptr, nullptr, &step, budget);
  }
  Items items = iterate(value, budget);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value items_of(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "items", {});
  if (value.is_undefined()) return Value::list({});
  if (!value.is_dict()) throw Error("Can only get item pairs from a mapping.");
  return call_method(value, "items", {}, budget);
}

// Sorts by keys computed before; comparisons may throw, which std::sort allows.
void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool reversed) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reversed ? less(b.first, a.first) : less(a.first, b.first);
  });
}

Value sort(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(value, budget)) {
    const bool by_item = bound.get(2) == nullptr || bound.get(2)->is_none();
    keyed.emplace_back(folded(by_item ? item : path_of(item, *bound.get(2)), bound.flag(1, false)), item);
  }
  budget.spend(keyed.size() * 16);
  sort_by(keyed, bound.flag(0, false));
  Items sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted));
}

Value dictsort(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!value.is_dict()) fail({}, "dictsort needs a mapping, not {}", value.type_name());
  const std::string by = bound.string(1) == nullptr ? "key" : *bound.string(1);
  if (by != "key" && by != "value") throw Error("You can only sort by either \"key\" or \"value\"");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.dict()->entries()) {
    keyed.emplace_back(folded(by == "key" ? key : item, bound.flag(0, false)), Value::tuple({key, item}));
  }
  budget.spend(keyed.size() * 16);
  sort_by(keyed, bound.flag(2, false));
  Items pairs;
  for (auto& [key, pair] : keyed) pairs.push_back(std::move(pair));
  return Value::list(std::move(pairs));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  Items keys;
  Items kept;
  for (const Value& item : iterate(value, budget)) {
    const bool by_item = bound.get(1) == nullptr || bound.get(1)->is_none();
    Value key = folded(by_item ? item : path_of(item, *bound.get(1)), bound.flag(0, false));
    budget.spend(keys.size());
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

template <bool largest>
Value extreme(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const Value* best = nullptr;
  Value best_key;
  const Items items = iterate(value, budget);
  for (const Value& item : items) {
    const bool by_item = bound.get(1) == nullptr || bound.get(1)->is_none();
    Value key = folded(by_item ? item : path_of(item, *bound.get(1)), bound.flag(0, false));
    if (best != nullptr && !(largest ? less(best_key, key) : less(key, best_key))) continue;
    best = &item;
    best_key = std::move(key);
  }
  return best == nullptr ? Value::undefined("No aggregated item, sequence was empty.") : *best;
}

Value sum(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound bound(arguments, "sum", {"attribute", "start"});
  Value total = bound.get(1) == nullptr ? Value(std::int64_t{0}) : *bound.get(1);
  for (const Value& item : iterate(value, budget)) {
    const bool by_item = bound.get(0) == nullptr || bound.get(0)->is_none();
    total = binary("+", total, by_item ? item : path_of(item, *bound.get(0)), budget);
  }
  return total;
}

// The arguments from `from` on, and the name of a filter or test before them.
std::string take_name(const Arguments& arguments, std::size_t from, std::string_view user) {
  if (arguments.positional.size() <= from || !arguments.positional[from].is_string()) {
    fail({}, "{}() needs the name of a filter or test", user);
  }
  return *arguments.positional[from].string();
}

Arguments rest_of(const Arguments& arguments, std::size_t from) {
  return {Items(arguments.positional.begin() + static_cast<std::ptrdiff_t>(from), arguments.positional.end()),
          arguments.keywords};
}

Value map(const Value& value, const Arguments& arguments, Budget& budget) {
  Items mapped;
  if (arguments.positional.empty()) {
    const Bound bound(arguments, "map", {"attribute", "default"}, 1);
    for (const Value& item : iterate(value, budget)) {
      Value found = path_of(item, *bound.get(0));
      mapped.push_back(found.is_undefined() && bound.get(1) != nullptr ? *bound.get(1) : found);
    }
    return Value::list(std::move(mapped));
  }
  const std::string name = take_name(arguments, 0, "map");
  if (!is_filter(name)) fail({}, "the filter {} is not supported", in_quotes(name));
  if (name == "map") throw Error("map of map is not supported");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : iterate(value, budget)) mapped.push_back(apply_filter(name, item, rest, budget));
  return Value::list(std::move(mapped));
}

// select, reject, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Value select(const Value& value, const Arguments& arguments, Budget& budget) {
  constexpr std::size_t from = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) throw Error("the name of an attribute is missing");
  const bool tested = arguments.positional.size() > from;
  const std::string name = tested ? take_name(arguments, from, "select") : "";
  if (tested && !is_test(name)) fail({}, "the test {} is not supported", in_quotes(name));
  const Arguments rest = tested ? rest_of(arguments, from + 1) : Arguments{};
  Items kept;
  for (const Value& item : iterate(value, budget)) {
    const Value looked_at = by_attribute ? path_of(item, arguments.positional[0]) : item;
    if ((tested ? apply_test(name, looked_at, rest) : looked_at.truthy()) == wanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

// --- everything else
// --------------------------------------------------------------------------------------------------------

Value otherwise(const Value& value, const Arguments& arguments, Budget&) {
  const Bound bound(arguments, "default", {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (bound.flag(1, false) && !value.truthy());
  if (!missing) return value;
  return bound.get(0) == nullptr ? Value("") : *bound.get(0);
}

// An attribute, never an item.
Value attr(const Value& value, const Arguments& arguments, Budget&) {
  const std::string name = take_name(arguments, 0, "attr");
  if (value.is_dict() && !has_method(value, name))
    return Value::undefined("'dict object' has no attribute " + to_repr(name));
  return attribute(value, name);
}

Value string(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "string", {});
  if (value.is_string()) return value;
  std::string text = to_text(value);
  budget.spend_text(text.size());
  return text;
}

Value list(const Value& value, const Arguments& arguments, Budget& budget) {
  const Bound none(arguments, "list", {});
  return Value::list(iterate(value, budget));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"abs", absolute},
      {"attr", attr},
      {"capitalize", mapped_text<to_capitalized>},
      {"count", [](const Value& v, const Arguments&, Budget&) { return Value(length(v)); }},
      {"d", otherwise},
      {"default", otherwise},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_int},
      {"items", items_of},
      {"join", join},
      {"last", last},
      {"length", [](const Value& v, const Arguments&, Budget&) { return Value(length(v)); }},
      {"list", list},
      {"lower", mapped_text<to_lower>},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round},
      {"safe", string},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", mapped_text<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", mapped_text<to_upper>},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filters().contains(name);
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  return filters().at(name)(value, arguments, budget);
}

}  // namespace pergola::jinja
