#include "text/jinja/tests.h"

#include <unordered_map>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/python_text.h"

namespace pergola::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments);

const Value& operand(const Arguments& arguments, std::string_view test) {
  return *Bound(arguments, test, {"other"}, 1).get(0);
}

std::int64_t whole(const Value& value) {
  require_defined(value);
  if (!value.is_integer()) fail({}, "a whole number is needed, not {}", value.type_name());
  return value.integer();
}

bool has_items(const Value& value) {
  return value.is_undefined() || value.is_string() || value.items() != nullptr || value.dict() != nullptr ||
         value.loop() != nullptr;
}

bool is_cased(const Value& value, bool upper) {
  const std::string text = to_text(value);
  return (upper ? to_upper(text) : to_lower(text)) == text && (upper ? to_lower(text) : to_upper(text)) != text;
}

// Python's `is`: the same object, which for values that are not shared is the same value of the same type.
bool is_same(const Value& a, const Value& b) {
  if (a.type_name() != b.type_name()) return false;
  if (a.items() != nullptr) return a.items() == b.items();
  if (a.dict() != nullptr) return a.dict() == b.dict();
  return a == b;
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> table = [] {
    std::unordered_map<std::string_view, Test> t;
    t["defined"] = [](const Value& v, const Arguments&) { return !v.is_undefined(); };
    t["undefined"] = [](const Value& v, const Arguments&) { return v.is_undefined(); };
    t["none"] = [](const Value& v, const Arguments&) { return v.is_none(); };
    t["boolean"] = [](const Value& v, const Arguments&) { return v.is_boolean(); };
    t["true"] = [](const Value& v, const Arguments&) { return v.is_boolean() && v.truthy(); };
    t["false"] = [](const Value& v, const Arguments&) { return v.is_boolean() && !v.truthy(); };
    t["integer"] = [](const Value& v, const Arguments&) { return v.is_integer() && !v.is_boolean(); };
    t["float"] = [](const Value& v, const Arguments&) { return v.is_float(); };
    t["number"] = [](const Value& v, const Arguments&) { return v.is_number(); };
    t["string"] = [](const Value& v, const Arguments&) { return v.is_string(); };
    t["mapping"] = [](const Value& v, const Arguments&) { return v.is_dict(); };
    t["sequence"] = [](const Value& v, const Arguments&) { return has_items(v); };
    t["iterable"] = [](const Value& v, const Arguments&) { return has_items(v); };
    t["callable"] = [](const Value& v, const Arguments&) {
      return v.function() != nullptr || v.macro() != nullptr || v.loop() != nullptr;
    };
    t["odd"] = [](const Value& v, const Arguments&) { return whole(v) % 2 != 0; };
    t["even"] = [](const Value& v, const Arguments&) { return whole(v) % 2 == 0; };
    t["divisibleby"] = [](const Value& v, const Arguments& a) {
      const std::int64_t by = whole(operand(a, "divisibleby"));
      if (by == 0) throw Error("division by zero");
      return by == -1 || whole(v) % by == 0;
    };
    t["lower"] = [](const Value& v, const Arguments&) { return is_cased(v, false); };
    t["upper"] = [](const Value& v, const Arguments&) { return is_cased(v, true); };
    t["in"] = [](const Value& v, const Arguments& a) { return contains(operand(a, "in"), v); };
    t["sameas"] = [](const Value& v, const Arguments& a) { return is_same(v, operand(a, "sameas")); };
    t["eq"] = [](const Value& v, const Arguments& a) { return v == operand(a, "eq"); };
    t["ne"] = [](const Value& v, const Arguments& a) { return !(v == operand(a, "ne")); };
    t["lt"] = [](const Value& v, const Arguments& a) { return less(v, operand(a, "lt")); };
    t["gt"] = [](const Value& v, const Arguments& a) { return less(operand(a, "gt"), v); };
    t["le"] = [](const Value& v, const Arguments& a) { return !less(operand(a, "le"), v); };
    t["ge"] = [](const Value& v, const Arguments& a) { return !less(v, operand(a, "ge")); };
    t["equalto"] = t["eq"];
    t["lessthan"] = t["lt"];
    t["greaterthan"] = t["gt"];
    t["filter"] = [](const Value& v, const Arguments&) { return v.is_string() && is_filter(*v.string()); };
    t["test"] = [](const Value& v, const Arguments&) { return v.is_string() && is_test(*v.string()); };
    return t;
  }();
  return table;
}

}  // namespace

bool is_test(std::string_view name) {
  return tests().contains(name);
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  return tests().at(name)(value, arguments);
}

}  // namespace pergola::jinja
