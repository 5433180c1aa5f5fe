#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace pergola::jinja {

class Value;
struct BoundMacro;
class Dict;
struct Loop;
struct Namespace;

/// What stands in place of a value that is not there: prints as nothing, is false, iterates over nothing; any other use
/// is an error that says `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

using Items = std::vector<Value>;
struct List {
  std::shared_ptr<const Items> items;
};
struct Tuple {
  std::shared_ptr<const Items> items;
};

/// A function that templates can call: a global such as range, or a method that was taken without being called.
struct Function {
  std::string name;
  std::shared_ptr<const Value> self;  ///< of a method; else null
};

/// A value of a template, with the behaviour of Python's. Strings, lists and dicts are immutable and shared; only
/// namespaces change, and those belong to the interpreter, so that nothing can refer to itself and leak.
class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>, List,
                               Tuple, std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<const Loop>,
                               const BoundMacro*, std::shared_ptr<const Function>>;

  Value() : data_(Undefined{}) {}
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(Dict value);
  Value(Namespace* value) : data_(value) {}
  Value(std::shared_ptr<const Loop> value) : data_(std::move(value)) {}
  Value(const BoundMacro* value) : data_(value) {}
  Value(Function value) : data_(std::make_shared<const Function>(std::move(value))) {}

  static Value list(Items items);
  static Value tuple(Items items);
  /// `why`: the sentence of the error when it is used.
  static Value undefined(std::string why);
  /// Throws Error for whole numbers beyond 64 bits.
  static Value from_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_string() const { return holds<std::shared_ptr<const std::string>>(); }
  bool is_list() const { return holds<List>(); }
  bool is_tuple() const { return holds<Tuple>(); }
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_boolean() const { return holds<bool>(); }
  /// Whole numbers, among them True and False.
  bool is_integer() const { return holds<std::int64_t>() || is_boolean(); }
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_integer() || is_float(); }

  /// Null when the value is of another type.
  const std::string* string() const;
  const Items* items() const;  ///< of a list or tuple
  const Dict* dict() const;
  Namespace* name_space() const;
  const Loop* loop() const;
  const BoundMacro* macro() const;
  const Function* function() const;

  std::int64_t integer() const;  ///< is_integer() holds
  double number() const;         ///< is_number() holds
  const std::string& why_undefined() const;

  bool truthy() const;
  /// The type as Python names it: "str", "dict", ...
  std::string_view type_name() const;

  /// Equality as Python's: numbers by value, containers by content.
  friend bool operator==(const Value& a, const Value& b);

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  Variant data_;
};

/// A mapping that keeps the order of its keys.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  /// Null when there is no such key.
  const Value* find(const Value& key) const;
  const Value* find(const std::string& key) const;
  void set(Value key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> strings_;  // index of each key that is a string
};

/// What namespace() makes: the only value whose attributes can be set.
struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

/// The variable `loop` in a for statement.
struct Loop {
  std::shared_ptr<const Items> items;
  std::size_t index0 = 0;
  mutable std::shared_ptr<const Value> last_checked;  ///< of loop.changed()
};

}  // namespace pergola::jinja
