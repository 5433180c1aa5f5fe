#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pergola {

/// One value of a parsed JSON document together with its place ("pre_tokenizer.pretokenizers[1].behavior"), so that
/// every complaint names file and field. It refers to the document, which must outlive it. Every getter throws Error
/// when the value is not of the type asked for.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file, std::string path = {})
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *value_; }
  Where where() const { return {.file = file_, .field = path_}; }

  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  bool is_object() const { return value_->is_object(); }

  /// Whether this object has `key` with a value other than null.
  bool has(const std::string& key) const;
  /// The member `key`, which must be there.
  JsonNode require(const std::string& key) const;
  /// The elements of this array.
  std::vector<JsonNode> items() const;
  std::size_t size() const;
  JsonNode at(std::size_t index) const { return {(*value_)[index], file_, fmt::format("{}[{}]", path_, index)}; }

  const std::string& string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;

  /// The member `key`, or the given value when it is missing or null.
  bool get_bool(const std::string& key, bool otherwise) const;
  std::string get_string(const std::string& key, const std::string& otherwise) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace pergola
