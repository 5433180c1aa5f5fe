#include "server/json_fields.h"

#include <cmath>

#include "server/api_error.h"

namespace pergola {

std::string_view kind_of(const nlohmann::ordered_json& value) {
  switch (value.type()) {
    case nlohmann::ordered_json::value_t::object:
      return "an object";
    case nlohmann::ordered_json::value_t::array:
      return "an array";
    case nlohmann::ordered_json::value_t::string:
      return "a string";
    case nlohmann::ordered_json::value_t::boolean:
      return "a boolean";
    case nlohmann::ordered_json::value_t::null:
      return "null";
    default:
      return "a number";
  }
}

std::string to_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonFields::JsonFields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string name = path_.empty() ? "the body" : path_.substr(0, path_.size() - 1);
  throw ApiError(400, fmt::format("{} must be an object, is {}", name, kind_of(object)), path_.empty() ? "" : name);
}

const JsonFields::Json* JsonFields::find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const JsonFields::Json& JsonFields::require(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) refuse(name_of(name), "is missing");
  return *value;
}

std::optional<bool> JsonFields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name_of(name), "must be a boolean, is {}", kind_of(*value));
  return value->get<bool>();
}

std::optional<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::floor(value->get<double>()) == value->get<double>());
  if (!whole)
    refuse(name_of(name), "must be an integer, is {}", value->is_number() ? to_text(*value) : kind_of(*value));
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  const auto wide = value->get<double>();
  const bool held =
      value->is_number_unsigned() ? value->get<std::uint64_t>() <= INT64_MAX : wide >= -kBeyond && wide < kBeyond;
  const std::int64_t number = held ? value->get<std::int64_t>() : 0;
  if (!held || number < least || number > most) {
    refuse(name_of(name), "must be from {} to {}, is {}", least, most, to_text(*value));
  }
  return number;
}

std::optional<double> JsonFields::number(std::string_view name, double least, double most) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name_of(name), "must be a number, is {}", kind_of(*value));
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) {
    refuse(name_of(name), "must be from {} to {}, is {}", least, most, to_text(*value));
  }
  return number;
}

std::optional<std::string> JsonFields::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name_of(name), "must be a string, is {}", kind_of(*value));
  return value->get<std::string>();
}

std::string JsonFields::required_text(std::string_view name) {
  require(name);
  return *text(name);
}

const JsonFields::Json* JsonFields::array(std::string_view name, std::size_t most) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) refuse(name_of(name), "must be an array, is {}", kind_of(*value));
  if (value->size() > most) refuse(name_of(name), "has {} elements, more than {}", value->size(), most);
  return value;
}

const JsonFields::Json* JsonFields::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) refuse(name_of(name), "must be an object, is {}", kind_of(*value));
  return value;
}

void JsonFields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void JsonFields::refuse_others() const {
  for (const auto& [name, value] : object_.items()) {
    if (!value.is_null() && !known_.contains(name)) {
      const std::string shown = name.substr(0, 64);
      refuse(path_ + shown, "is not known here");
    }
  }
}

}  // namespace pergola
