#include "text/json_node.h"

#include <algorithm>

namespace pergola {
using nlohmann::json;

bool JsonNode::has(const std::string& key) const {
  if (!is_object()) fail(where(), "must be an object, is {}", value_->type_name());
  const auto member = value_->find(key);
  return member != value_->end() && !member->is_null();
}

JsonNode JsonNode::require(const std::string& key) const {
  if (!is_object()) fail(where(), "must be an object, is {}", value_->type_name());
  const std::string path = path_.empty() ? key : path_ + "." + key;
  const auto member = value_->find(key);
  if (member == value_->end()) fail({.file = file_, .field = path}, "is missing");
  return {*member, file_, path};
}

std::size_t JsonNode::size() const {
  if (!is_array()) fail(where(), "must be an array, is {}", value_->type_name());
  return value_->size();
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> nodes;
  nodes.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) nodes.push_back(at(i));
  return nodes;
}

const std::string& JsonNode::string() const {
  if (!is_string()) fail(where(), "must be a string, is {}", value_->type_name());
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) fail(where(), "must be true or false, is {}", value_->type_name());
  return value_->get<bool>();
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  if (!value_->is_number_integer())
    fail(where(), "must be an integer, is {}",
         value_->dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40));
  const bool too_large = value_->is_number_unsigned() &&
                         value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0));
  if (too_large || value_->get<std::int64_t>() < least)
    fail(where(), "must be from {} to {}, is {}", least, most, value_->dump());
  return value_->get<std::int64_t>();
}

bool JsonNode::get_bool(const std::string& key, bool otherwise) const {
  return has(key) ? require(key).boolean() : otherwise;
}

std::string JsonNode::get_string(const std::string& key, const std::string& otherwise) const {
  return has(key) ? require(key).string() : otherwise;
}

}  // namespace pergola
