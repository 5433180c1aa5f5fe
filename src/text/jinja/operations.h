#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pergola::jinja {

/// What a rendering may still spend: one unit a node of the program, one for every 64 bytes of text or item of a list
/// that is made. Bounds time and memory.
class Budget {
 public:
  explicit Budget(std::int64_t units) : left_(units) {}

  /// Throws Error when nothing is left.
  void spend(std::size_t units);
  void spend_text(std::size_t bytes) { spend(1 + bytes / 64); }

 private:
  std::int64_t left_;
};

/// The arguments of one call.
struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// Arguments by the names of a signature. Throws Error for too many, unknown, doubled or missing ones.
class Bound {
 public:
  /// The first `required` of `names` must be given.
  Bound(const Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> names,
        std::size_t required = 0);

  /// Null when it was not given.
  const Value* get(std::size_t index) const { return values_[index]; }
  bool flag(std::size_t index, bool otherwise) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// Null when it was not given or is None.
  const std::string* string(std::size_t index) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

/// list(value): items of lists and tuples, keys of dicts, characters of strings, nothing of undefined. Throws Error for
/// what has no items.
Items iterate(const Value& value, Budget& budget);
/// len(value). Throws Error for what has none.
std::int64_t length(const Value& value);

/// value.name and value[key], with Jinja's order of looking: an attribute, then an item, and the other way round. What
/// is not there is undefined. Throws Error when `value` itself is undefined.
Value attribute(const Value& value, const std::string& name);
Value subscript(const Value& value, const Value& key);
Value slice(const Value& value, const Value* start, const Value* stop, const Value* step, Budget& budget);

/// needle in value.
bool contains(const Value& value, const Value& needle);
/// a < b. Throws Error for types without an order between them.
bool less(const Value& a, const Value& b);
/// a op b for + - * / // % **.
Value binary(const std::string& op, const Value& a, const Value& b, Budget& budget);
Value negated(const Value& value);

/// Whether values of this type have a method `name`.
bool has_method(const Value& value, std::string_view name);
/// value.name(arguments). Throws Error for a method that is not supported or would change the value.
Value call_method(const Value& value, const std::string& name, const Arguments& arguments, Budget& budget);

/// Throws Error with the sentence of an undefined value.
void require_defined(const Value& value);

}  // namespace pergola::jinja
