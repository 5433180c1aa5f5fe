#pragma once

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/automaton.h"

namespace pergola {

/// Writes JSON into an automaton: values in general, and those that a JSON Schema allows.
///
/// White space: none, one space, or one line end with up to 32 spaces or 8 tabs, wherever JSON has it but before
/// colons. Numbers have up to 18 digits before and 16 behind the point.
class JsonGrammar {
 public:
  using NodeId = AutomatonBuilder::NodeId;

  /// `name` stands for the schema in errors.
  JsonGrammar(AutomatonBuilder& builder, std::string name) : b_(builder), name_(std::move(name)) {}

  /// Any JSON value, any JSON object.
  NodeId any_value(NodeId from);
  NodeId any_object(NodeId from);

  /// JSON that `schema` allows; `root` is what its references point into, and outlives the calls. Throws Error naming a
  /// keyword that is not supported, or the place of what is wrong.
  NodeId value_of(NodeId from, const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

 private:
  struct Member {
    std::string key;
    const nlohmann::ordered_json* schema;  ///< null: any value
    bool required;
  };

  NodeId rule(const std::string& key, NodeId (JsonGrammar::*body)(NodeId));
  NodeId space(NodeId from) { return b_.call(from, rule("space", &JsonGrammar::space_body)); }
  NodeId space_body(NodeId from);
  NodeId string(NodeId from) { return b_.call(from, rule("string", &JsonGrammar::string_body)); }
  NodeId string_body(NodeId from);
  NodeId character(NodeId from) { return b_.call(from, rule("character", &JsonGrammar::character_body)); }
  NodeId character_body(NodeId from);
  void character_to(NodeId from, NodeId to);
  NodeId number(NodeId from) { return b_.call(from, rule("number", &JsonGrammar::number_body)); }
  NodeId number_body(NodeId from);
  NodeId integer(NodeId from) { return b_.call(from, rule("integer", &JsonGrammar::integer_body)); }
  NodeId integer_body(NodeId from);
  NodeId digits(NodeId from, int least, int most);
  NodeId value_body(NodeId from);
  NodeId object_body(NodeId from);
  NodeId array_body(NodeId from);

  NodeId schema(NodeId from, const nlohmann::ordered_json& schema, const std::string& path, int depth);
  NodeId reference(NodeId from, const nlohmann::ordered_json& schema, const std::string& path, int depth);
  NodeId typed(NodeId from, const std::string& type, const nlohmann::ordered_json& schema, const std::string& path,
               int depth);
  NodeId object(NodeId from, const nlohmann::ordered_json& schema, const std::string& path, int depth);
  NodeId members(NodeId from, const std::vector<Member>& members,
                 const std::optional<const nlohmann::ordered_json*>& more, const std::string& path, int depth);
  NodeId member_value(NodeId from, const nlohmann::ordered_json* schema, const std::string& path, int depth);
  NodeId other_key(NodeId from, const std::vector<Member>& members);
  NodeId array(NodeId from, const nlohmann::ordered_json& schema, const std::string& path, int depth);
  NodeId limited_string(NodeId from, const nlohmann::ordered_json& schema, const std::string& path);
  NodeId limited_number(NodeId from, const nlohmann::ordered_json& schema, const std::string& path, bool whole);
  NodeId literals(NodeId from, const std::vector<nlohmann::ordered_json>& values);

  void check_keywords(const nlohmann::ordered_json& schema, const std::string& path) const;
  std::vector<std::string> types_of(const nlohmann::ordered_json& schema, const std::string& path) const;
  std::int64_t count(const nlohmann::ordered_json& schema, const char* keyword, std::int64_t otherwise,
                     const std::string& path) const;
  template <typename... Args>
  [[noreturn]] void reject(const std::string& path, fmt::format_string<Args...> format, Args&&... args) const;

  AutomatonBuilder& b_;
  std::string name_;
  const nlohmann::ordered_json* root_ = nullptr;
  std::map<std::string, NodeId> rules_;       // general JSON by name
  std::map<const void*, NodeId> references_;  // by the schema that is referred to
};

}  // namespace pergola
