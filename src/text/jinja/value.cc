#include "text/jinja/value.h"

#include <limits>

#include "base/error.h"

namespace pergola::jinja {

Value::Value(Dict value) : data_(std::make_shared<const Dict>(std::move(value))) {}

Value Value::list(Items items) {
  Value value;
  value.data_ = List{std::make_shared<const Items>(std::move(items))};
  return value;
}

Value Value::tuple(Items items) {
  Value value;
  value.data_ = Tuple{std::make_shared<const Items>(std::move(items))};
  return value;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  using Type = nlohmann::json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<std::int64_t>();
    case Type::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail({}, "the number {} is too large", json.get<std::uint64_t>());
      }
      return json.get<std::int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get_ref<const std::string&>();
    case Type::array: {
      Items items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item));
      return list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.set(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

const std::string* Value::string() const {
  const auto* pointer = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return pointer == nullptr ? nullptr : pointer->get();
}

const Items* Value::items() const {
  if (const auto* list = std::get_if<List>(&data_)) return list->items.get();
  if (const auto* tuple = std::get_if<Tuple>(&data_)) return tuple->items.get();
  return nullptr;
}

const Dict* Value::dict() const {
  const auto* pointer = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return pointer == nullptr ? nullptr : pointer->get();
}

Namespace* Value::name_space() const {
  const auto* pointer = std::get_if<Namespace*>(&data_);
  return pointer == nullptr ? nullptr : *pointer;
}

const Loop* Value::loop() const {
  const auto* pointer = std::get_if<std::shared_ptr<const Loop>>(&data_);
  return pointer == nullptr ? nullptr : pointer->get();
}

const BoundMacro* Value::macro() const {
  const auto* pointer = std::get_if<const BoundMacro*>(&data_);
  return pointer == nullptr ? nullptr : *pointer;
}

const Function* Value::function() const {
  const auto* pointer = std::get_if<std::shared_ptr<const Function>>(&data_);
  return pointer == nullptr ? nullptr : pointer->get();
}

std::int64_t Value::integer() const {
  if (const bool* boolean = std::get_if<bool>(&data_)) return *boolean ? 1 : 0;
  return std::get<std::int64_t>(data_);
}

double Value::number() const {
  if (const double* real = std::get_if<double>(&data_)) return *real;
  return static_cast<double>(integer());
}

const std::string& Value::why_undefined() const {
  static const std::string unknown = "the value is undefined";
  const auto& why = std::get<Undefined>(data_).why;
  return why == nullptr ? unknown : *why;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const std::string* text = string()) return !text->empty();
  if (const Items* list = items()) return !list->empty();
  if (const Dict* mapping = dict()) return mapping->size() > 0;
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view names[] = {"Undefined",   "NoneType", "bool",    "int",  "float",
                                               "str",         "list",     "tuple",   "dict", "Namespace",
                                               "LoopContext", "Macro",    "function"};
  return names[data_.index()];
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const std::string* text = a.string()) return *text == *b.string();
  if (const Items* list = a.items()) return list == b.items() || *list == *b.items();
  if (const Dict* dict = a.dict()) {
    if (dict == b.dict()) return true;
    if (dict->size() != b.dict()->size()) return false;
    for (const auto& [key, value] : dict->entries()) {
      const Value* other = b.dict()->find(key);
      if (other == nullptr || !(*other == value)) return false;
    }
    return true;
  }
  if (a.function() != nullptr) return a.function() == b.function();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  return a.name_space() == b.name_space() && a.macro() == b.macro();
}

const Value* Dict::find(const std::string& key) const {
  const auto found = strings_.find(key);
  return found == strings_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (const std::string* text = key.string()) return find(*text);
  for (const Entry& entry : entries_) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);  // entries_ is ours and not const here
    return;
  }
  if (const std::string* text = key.string()) strings_.emplace(*text, entries_.size());
  entries_.emplace_back(std::move(key), std::move(value));
}

}  // namespace pergola::jinja
