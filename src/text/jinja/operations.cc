#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace pergola::jinja {
namespace {

std::string repr_of(std::string_view text) {
  return to_repr(Value(text));
}

[[noreturn]] void reject_operands(const std::string& op, const Value& a, const Value& b) {
  fail({}, "unsupported operand types for {}: '{}' and '{}'", op, a.type_name(), b.type_name());
}

[[noreturn]] void too_large() {
  throw Error("a number is too large");
}

Value undefined_item(const Value& value, const Value& key) {
  const std::string owner = value.is_none() ? "None" : fmt::format("{} object", value.type_name());
  if (key.is_string()) return Value::undefined(fmt::format("'{}' has no attribute {}", owner, to_repr(key)));
  return Value::undefined(fmt::format("{} has no element {}", owner, to_repr(key)));
}

// Attributes that are no items: methods, and the fields of loops and namespaces. Nothing when there is none.
std::optional<Value> field(const Value& value, const std::string& name) {
  if (Namespace* names = value.name_space()) {
    const auto found = names->attributes.find(name);
    return found == names->attributes.end() ? std::nullopt : std::optional(found->second);
  }
  if (const Loop* loop = value.loop()) {
    const auto index = static_cast<std::int64_t>(loop->index0);
    const auto size = static_cast<std::int64_t>(loop->items->size());
    if (name == "index0") return index;
    if (name == "index") return index + 1;
    if (name == "revindex0") return size - index - 1;
    if (name == "revindex") return size - index;
    if (name == "first") return index == 0;
    if (name == "last") return index == size - 1;
    if (name == "length") return size;
    if (name == "depth0") return std::int64_t{0};  // only recursive loops have others
    if (name == "depth") return std::int64_t{1};
    if (name == "previtem") {
      return index == 0 ? Value::undefined("there is no previous item") : (*loop->items)[loop->index0 - 1];
    }
    if (name == "nextitem") {
      return index == size - 1 ? Value::undefined("there is no next item") : (*loop->items)[loop->index0 + 1];
    }
  }
  if (has_method(value, name)) return Function{name, std::make_shared<const Value>(value)};
  return std::nullopt;
}

std::optional<Value> item(const Value& value, const Value& key) {
  if (const Dict* dict = value.dict()) {
    const Value* found = dict->find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!key.is_integer()) return std::nullopt;
  const auto resolve = [&](std::size_t size) -> std::optional<std::size_t> {
    std::int64_t index = key.integer();
    const auto count = static_cast<std::int64_t>(size);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return std::nullopt;
    return static_cast<std::size_t>(index);
  };
  if (const Items* items = value.items()) {
    const auto index = resolve(items->size());
    return index ? std::optional((*items)[*index]) : std::nullopt;
  }
  if (const std::string* text = value.string()) {
    const std::vector<std::size_t> offsets = character_offsets(*text);
    const auto index = resolve(offsets.size() - 1);
    if (!index) return std::nullopt;
    return std::string_view(*text).substr(offsets[*index], offsets[*index + 1] - offsets[*index]);
  }
  return std::nullopt;
}

/// The indices of value[start:stop:step] as Python picks them out of `size` items.
std::vector<std::size_t> slice_indices(std::int64_t size, const Value* start, const Value* stop, const Value* step) {
  const auto part = [](const Value* value) -> std::optional<std::int64_t> {
    if (value == nullptr || value->is_none()) return std::nullopt;
    if (!value->is_integer()) fail({}, "slice indices must be integers or None, not {}", value->type_name());
    return value->integer();
  };
  const std::int64_t by = part(step).value_or(1);
  if (by == 0) throw Error("slice step cannot be zero");
  const std::int64_t low = by > 0 ? 0 : -1;
  const std::int64_t high = by > 0 ? size : size - 1;
  const auto clip = [&](std::optional<std::int64_t> index, std::int64_t otherwise) {
    if (!index) return otherwise;
    return std::clamp(*index < 0 ? *index + size : *index, low, high);
  };
  const std::int64_t first = clip(part(start), by > 0 ? low : high);
  const std::int64_t last = clip(part(stop), by > 0 ? high : low);
  std::vector<std::size_t> indices;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    indices.push_back(static_cast<std::size_t>(i));
    if (by > size || by < -size) break;  // the next one is outside, and adding might overflow
    i += by;
  }
  return indices;
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const auto spend = [&](std::size_t size, std::size_t units_per) {
    if (size > 0 && count > std::numeric_limits<std::size_t>::max() / 2 / size) too_large();
    budget.spend(size * count / units_per);
  };
  if (const std::string* text = value.string()) {
    spend(text->size(), 64);
    std::string out;
    out.reserve(text->size() * count);
    for (std::size_t i = 0; i < count && !text->empty(); ++i) out += *text;
    return out;
  }
  spend(value.items()->size(), 1);
  Items items;
  for (std::size_t i = 0; i < count && !value.items()->empty(); ++i) {
    items.insert(items.end(), value.items()->begin(), value.items()->end());
  }
  return value.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value added(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string() && b.is_string()) {
    budget.spend_text(a.string()->size() + b.string()->size());
    return *a.string() + *b.string();
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    budget.spend(a.items()->size() + b.items()->size());
    Items items = *a.items();
    items.insert(items.end(), b.items()->begin(), b.items()->end());
    return a.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  reject_operands("+", a, b);
}

Value float_binary(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    const double power = std::pow(a, b);
    if (std::isnan(power) || (std::isinf(power) && std::isfinite(a))) throw Error("the power is no finite number");
    return power;
  }
  if (b == 0) throw Error("division by zero");
  if (op == "/") return a / b;
  const double floor = std::floor(a / b);
  if (op == "//") return floor;
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  if (base == 1 || exponent == 0) return 1;
  if (base == 0) return 0;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {  // ends early: the magnitude at least doubles
    if (__builtin_mul_overflow(result, base, &result)) too_large();
  }
  return result;
}

Value integer_binary(const std::string& op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    if (b < 0) return float_binary(op, static_cast<double>(a), static_cast<double>(b));
    return integer_power(a, b);
  } else {
    if (b == 0) throw Error("division by zero");
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) return op == "%" ? Value(std::int64_t{0}) : negated(a);
    const std::int64_t quotient = a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
    return op == "//" ? quotient : a - quotient * b;
  }
  if (overflow) too_large();
  return result;
}

int compare_texts(const std::string& a, const std::string& b) {
  return a.compare(b);  // UTF-8 sorts as its code points do
}

}  // namespace

void Budget::spend(std::size_t units) {
  if (units > static_cast<std::size_t>(left_)) throw Error("the template takes too many steps");
  left_ -= static_cast<std::int64_t>(units);
}

Bound::Bound(const Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> names,
             std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail({}, "{}() takes at most {} arguments, got {}", function, names_.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail({}, "{}() has no argument {}", function, repr_of(name));
    const auto place = static_cast<std::size_t>(found - names_.begin());
    if (values_[place] != nullptr) fail({}, "{}() got the argument {} twice", function, repr_of(name));
    values_[place] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) fail({}, "{}() needs the argument '{}'", function, names_[i]);
  }
}

bool Bound::flag(std::size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : values_[index]->truthy();
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr) return otherwise;
  if (!value->is_integer())
    fail({}, "{}(): '{}' must be an integer, not {}", function_, names_[index], value->type_name());
  return value->integer();
}

const std::string* Bound::string(std::size_t index) const {
  const Value* value = values_[index];
  if (value == nullptr || value->is_none()) return nullptr;
  if (!value->is_string())
    fail({}, "{}(): '{}' must be a string, not {}", function_, names_[index], value->type_name());
  return value->string();
}

void require_defined(const Value& value) {
  if (value.is_undefined()) throw Error(value.why_undefined());
}

Items iterate(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (const Items* items = value.items()) {
    budget.spend(items->size());
    return *items;
  }
  Items items;
  if (const Dict* dict = value.dict()) {
    budget.spend(dict->size());
    for (const auto& [key, entry] : dict->entries()) items.push_back(key);
    return items;
  }
  if (const std::string* text = value.string()) {
    budget.spend(text->size());
    const std::vector<std::size_t> offsets = character_offsets(*text);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.emplace_back(std::string_view(*text).substr(offsets[i], offsets[i + 1] - offsets[i]));
    }
    return items;
  }
  fail({}, "'{}' object is not iterable", value.type_name());
}

std::int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Items* items = value.items()) return static_cast<std::int64_t>(items->size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->size());
  if (const std::string* text = value.string()) return static_cast<std::int64_t>(text_length(*text));
  if (const Loop* loop = value.loop()) return static_cast<std::int64_t>(loop->items->size());
  fail({}, "object of type '{}' has no len()", value.type_name());
}

Value attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (auto found = field(value, name)) return std::move(*found);
  if (const Dict* dict = value.dict()) {
    if (const Value* entry = dict->find(name)) return *entry;
  }
  return undefined_item(value, name);
}

Value subscript(const Value& value, const Value& key) {
  require_defined(value);
  if (auto found = item(value, key)) return std::move(*found);
  if (key.is_string()) {
    if (auto found = field(value, *key.string())) return std::move(*found);
  }
  return undefined_item(value, key);
}

Value slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget) {
  require_defined(value);
  if (const Items* items = value.items()) {
    const auto indices = slice_indices(static_cast<std::int64_t>(items->size()), start, stop, step);
    budget.spend(indices.size());
    Items picked;
    picked.reserve(indices.size());
    for (const std::size_t index : indices) picked.push_back((*items)[index]);
    return value.is_list() ? Value::list(std::move(picked)) : Value::tuple(std::move(picked));
  }
  if (const std::string* text = value.string()) {
    budget.spend_text(text->size());
    const std::vector<std::size_t> offsets = character_offsets(*text);
    std::string picked;
    for (const std::size_t i : slice_indices(static_cast<std::int64_t>(offsets.size()) - 1, start, stop, step)) {
      picked += std::string_view(*text).substr(offsets[i], offsets[i + 1] - offsets[i]);
    }
    return picked;
  }
  return Value::undefined(fmt::format("a {} object cannot be sliced", value.type_name()));
}

bool contains(const Value& value, const Value& needle) {
  if (const std::string* text = value.string()) {
    if (!needle.is_string()) {
      fail({}, "'in <string>' requires string as left operand, not {}", needle.type_name());
    }
    return text->find(*needle.string()) != std::string::npos;
  }
  if (value.is_undefined()) return false;
  if (const Dict* dict = value.dict()) return dict->find(needle) != nullptr;
  if (const Items* items = value.items()) return std::find(items->begin(), items->end(), needle) != items->end();
  fail({}, "argument of type '{}' is not iterable", value.type_name());
}

bool less(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return compare_texts(*a.string(), *b.string()) < 0;
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const Items& left = *a.items();
    const Items& right = *b.items();
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!(left[i] == right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  require_defined(a);
  require_defined(b);
  fail({}, "'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name());
}

Value negated(const Value& value) {
  require_defined(value);
  if (value.is_float()) return -value.number();
  if (!value.is_integer()) fail({}, "bad operand type for unary -: '{}'", value.type_name());
  if (value.integer() == std::numeric_limits<std::int64_t>::min()) too_large();
  return -value.integer();
}

Value binary(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  require_defined(a);
  if (op == "%" && a.is_string()) {
    std::string text = percent_format(*a.string(), b);
    budget.spend_text(text.size());
    return text;
  }
  require_defined(b);
  if (a.is_integer() && b.is_integer()) return integer_binary(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_binary(op, a.number(), b.number());
  if (op == "+") return added(a, b, budget);
  if (op == "*" && (a.is_string() || a.items() != nullptr) && b.is_integer()) return repeated(a, b.integer(), budget);
  if (op == "*" && a.is_integer() && (b.is_string() || b.items() != nullptr)) return repeated(b, a.integer(), budget);
  reject_operands(op, a, b);
}

}  // namespace pergola::jinja
