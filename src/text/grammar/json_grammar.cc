#include "text/grammar/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "text/grammar/number_range.h"
#include "text/grammar/regex_grammar.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;
using NodeId = AutomatonBuilder::NodeId;

constexpr int kMaxSchemaDepth = 64;
constexpr std::int64_t kMaxCount = 10'000;  // of characters and items
constexpr int kIndentSpaces = 32;
constexpr int kIndentTabs = 8;
constexpr int kExponentDigits = 3;

const CodePoints kStringCharacters = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};  // all but quote and backslash

constexpr std::array<std::string_view, 20> kKeywords = {"type",
                                                        "properties",
                                                        "required",
                                                        "additionalProperties",
                                                        "enum",
                                                        "const",
                                                        "items",
                                                        "minimum",
                                                        "maximum",
                                                        "exclusiveMinimum",
                                                        "exclusiveMaximum",
                                                        "minLength",
                                                        "maxLength",
                                                        "minItems",
                                                        "maxItems",
                                                        "pattern",
                                                        "anyOf",
                                                        "$ref",
                                                        "$defs",
                                                        "definitions"};
/// What says nothing about which texts are valid.
constexpr std::array<std::string_view, 11> kAnnotations = {"title",    "description", "default",  "examples",
                                                           "$schema",  "$id",         "$comment", "deprecated",
                                                           "readOnly", "writeOnly",   "strict"};

template <typename List>
bool among(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// A finite number of a schema as decimals without exponent.
std::optional<std::string> decimals(const ordered_json& value) {
  if (value.is_number_integer()) return value.dump();
  const double number = value.get<double>();
  if (!std::isfinite(number) || std::abs(number) >= 1e18) return std::nullopt;
  std::string text = fmt::format("{}", number);
  if (text.find('e') != std::string::npos) text = fmt::format("{:.16f}", number);
  return text;
}

}  // namespace

template <typename... Args>
void JsonGrammar::reject(const std::string& path, fmt::format_string<Args...> format, Args&&... args) const {
  fail({.field = name_ + path}, format, std::forward<Args>(args)...);
}

// --- JSON in general ------------------------------------------------------------------------------------------------

NodeId JsonGrammar::rule(const std::string& key, NodeId (JsonGrammar::*body)(NodeId)) {
  const auto [found, added] = rules_.try_emplace(key, 0);
  if (!added) return found->second;
  const NodeId start = b_.start_rule();
  found->second = start;  // before the body, which may refer to itself
  b_.end_rule((this->*body)(start));
  return start;
}

NodeId JsonGrammar::space_body(NodeId from) {
  const NodeId end = b_.node();
  b_.empty(from, end);
  b_.empty(b_.text(from, " "), end);
  const NodeId line = b_.text(from, "\n");
  b_.empty(line, end);
  for (const auto& [text, most] : {std::pair(" ", kIndentSpaces), std::pair("\t", kIndentTabs)}) {
    NodeId at = line;
    for (int i = 0; i < most; ++i) {
      at = b_.text(at, text);
      b_.empty(at, end);
    }
  }
  return end;
}

// One character of a string, or an escape. Surrogates are not written as escapes: half a pair is no text.
void JsonGrammar::character_to(NodeId from, NodeId to) {
  b_.one_of(from, kStringCharacters, to);
  const NodeId escape = b_.node();
  b_.byte(from, '\\', '\\', escape);
  for (const char c : std::string_view("\"\\/bfnrt")) {
    b_.byte(escape, static_cast<unsigned char>(c), static_cast<unsigned char>(c), to);
  }
  const auto hex = [&](NodeId at, NodeId next) {
    b_.byte(at, '0', '9', next);
    b_.byte(at, 'a', 'f', next);
    b_.byte(at, 'A', 'F', next);
  };
  const NodeId unicode = b_.text(escape, "u");
  const NodeId second = b_.node();
  const NodeId third = b_.node();
  const NodeId fourth = b_.node();
  b_.byte(unicode, '0', '9', second);
  b_.byte(unicode, 'a', 'c', second);
  b_.byte(unicode, 'A', 'C', second);
  b_.byte(unicode, 'e', 'f', second);
  b_.byte(unicode, 'E', 'F', second);
  const NodeId after_d = b_.node();
  b_.byte(unicode, 'd', 'd', after_d);
  b_.byte(unicode, 'D', 'D', after_d);
  b_.byte(after_d, '0', '7', third);
  hex(second, third);
  hex(third, fourth);
  hex(fourth, to);
}

NodeId JsonGrammar::character_body(NodeId from) {
  const NodeId to = b_.node();
  character_to(from, to);
  return to;
}

NodeId JsonGrammar::string_body(NodeId from) {
  const NodeId inside = b_.text(from, "\"");
  character_to(inside, inside);
  return b_.text(inside, "\"");
}

NodeId JsonGrammar::digits(NodeId from, int least, int most) {
  const NodeId end = b_.node();
  for (int i = 0; i < most; ++i) {
    if (i >= least) b_.empty(from, end);
    const NodeId next = b_.node();
    b_.byte(from, '0', '9', next);
    from = next;
  }
  b_.empty(from, end);
  return end;
}

NodeId JsonGrammar::integer_body(NodeId from) {
  const NodeId unsigned_part = b_.node();
  b_.empty(from, unsigned_part);
  b_.byte(from, '-', '-', unsigned_part);
  const NodeId first = b_.node();
  b_.byte(unsigned_part, '1', '9', first);
  const NodeId end = digits(first, 0, kIntegerDigits - 1);
  b_.byte(unsigned_part, '0', '0', end);
  return end;
}

NodeId JsonGrammar::number_body(NodeId from) {
  const NodeId whole = integer_body(from);
  const NodeId fraction = digits(b_.text(whole, "."), 1, kFractionDigits);
  b_.empty(whole, fraction);
  const NodeId exponent = b_.node();
  b_.byte(fraction, 'e', 'e', exponent);
  b_.byte(fraction, 'E', 'E', exponent);
  const NodeId sign = b_.node();
  b_.byte(exponent, '+', '+', sign);
  b_.byte(exponent, '-', '-', sign);
  b_.empty(exponent, sign);
  const NodeId end = digits(sign, 1, kExponentDigits);
  b_.empty(fraction, end);
  return end;
}

NodeId JsonGrammar::value_body(NodeId from) {
  const NodeId end = b_.node();
  b_.empty(string(from), end);
  b_.empty(number(from), end);
  b_.empty(b_.choice(from, {"true", "false", "null"}), end);
  b_.empty(any_object(from), end);
  b_.empty(b_.call(from, rule("array", &JsonGrammar::array_body)), end);
  return end;
}

NodeId JsonGrammar::any_value(NodeId from) {
  return b_.call(from, rule("value", &JsonGrammar::value_body));
}
NodeId JsonGrammar::any_object(NodeId from) {
  return b_.call(from, rule("object", &JsonGrammar::object_body));
}

NodeId JsonGrammar::object_body(NodeId from) {
  return members(from, {}, nullptr, "", 0);
}

NodeId JsonGrammar::array_body(NodeId from) {
  const NodeId open = space(b_.text(from, "["));
  const NodeId item = b_.node();
  b_.empty(open, item);
  const NodeId after = space(any_value(item));
  b_.empty(space(b_.text(after, ",")), item);
  const NodeId close = b_.node();
  b_.empty(open, close);
  b_.empty(after, close);
  return b_.text(close, "]");
}

// --- schemas
// ----------------------------------------------------------------------------------------------------------

NodeId JsonGrammar::value_of(NodeId from, const ordered_json& value, const ordered_json& root) {
  root_ = &root;
  return schema(from, value, "", 0);
}

void JsonGrammar::check_keywords(const ordered_json& schema, const std::string& path) const {
  if (!schema.is_object()) reject(path, "a schema must be an object or true");
  for (const auto& [key, value] : schema.items()) {
    if (!among(kKeywords, key) && !among(kAnnotations, key))
      reject(path, "the keyword {} is not supported", in_quotes(key));
  }
}

std::int64_t JsonGrammar::count(const ordered_json& schema, const char* keyword, std::int64_t otherwise,
                                const std::string& path) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return otherwise;
  if (!found->is_number_integer() ||
      (found->is_number_unsigned() ? found->get<std::uint64_t>() > kMaxCount : found->get<std::int64_t>() < 0)) {
    reject(path + "." + keyword, "must be a whole number from 0 to {}", kMaxCount);
  }
  return found->get<std::int64_t>();
}

// The types that are allowed; where none is named, those that the keywords are about.
std::vector<std::string> JsonGrammar::types_of(const ordered_json& schema, const std::string& path) const {
  static const std::set<std::string> known = {"object", "array", "string", "number", "integer", "boolean", "null"};
  std::vector<std::string> types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const ordered_json list = type->is_array() ? *type : ordered_json::array({*type});
    for (const auto& entry : list) {
      if (!entry.is_string() || !known.contains(entry.get<std::string>())) {
        reject(path + ".type", "{} is no type", in_quotes(entry.dump()));
      }
      types.push_back(entry.get<std::string>());
    }
    if (types.empty()) reject(path + ".type", "no type is allowed");
    return types;
  }
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return schema.contains(key); });
  };
  if (has({"properties", "required", "additionalProperties"})) types.emplace_back("object");
  if (has({"items", "minItems", "maxItems"})) types.emplace_back("array");
  if (has({"minLength", "maxLength", "pattern"})) types.emplace_back("string");
  if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) types.emplace_back("number");
  return types;
}

NodeId JsonGrammar::schema(NodeId from, const ordered_json& schema, const std::string& path, int depth) {
  if (depth > kMaxSchemaDepth) reject(path, "the schema is nested deeper than {} levels", kMaxSchemaDepth);
  if (schema.is_boolean() && schema.get<bool>()) return any_value(from);
  check_keywords(schema, path);
  const auto only = [&](const char* keyword) {
    for (const auto& [key, value] : schema.items()) {
      const bool harmless = among(kAnnotations, key) || key == keyword || key == "$defs" || key == "definitions";
      if (!harmless) reject(path, "{} beside {} is not supported", in_quotes(key), in_quotes(keyword));
    }
  };
  if (schema.contains("$ref")) {
    only("$ref");
    return reference(from, schema, path, depth);
  }
  if (const auto alternatives = schema.find("anyOf"); alternatives != schema.end()) {
    only("anyOf");
    if (!alternatives->is_array() || alternatives->empty()) reject(path + ".anyOf", "must be a list of schemas");
    const NodeId end = b_.node();
    for (std::size_t i = 0; i < alternatives->size(); ++i) {
      b_.empty(this->schema(from, (*alternatives)[i], fmt::format("{}.anyOf[{}]", path, i), depth + 1), end);
    }
    return end;
  }
  const std::vector<std::string> types = types_of(schema, path);
  if (schema.contains("const") || schema.contains("enum")) {
    std::vector<ordered_json> values;
    if (schema.contains("const")) values.push_back(schema["const"]);
    if (const auto list = schema.find("enum"); list != schema.end()) {
      if (!list->is_array() || list->empty()) reject(path + ".enum", "must be a list of values");
      if (schema.contains("const")) reject(path, "\"enum\" beside \"const\" is not supported");
      values.assign(list->begin(), list->end());
    }
    std::erase_if(values, [&](const ordered_json& value) {
      const std::string type = value.is_string()           ? "string"
                               : value.is_boolean()        ? "boolean"
                               : value.is_null()           ? "null"
                               : value.is_array()          ? "array"
                               : value.is_object()         ? "object"
                               : value.is_number_integer() ? "integer"
                                                           : "number";
      return !types.empty() && !among(types, type) && !(type == "integer" && among(types, "number"));
    });
    if (values.empty()) reject(path, "no value is of the type that is asked for");
    return literals(from, values);
  }
  if (types.empty()) return any_value(from);
  const NodeId end = b_.node();
  for (const std::string& type : types) b_.empty(typed(from, type, schema, path, depth), end);
  return end;
}

NodeId JsonGrammar::literals(NodeId from, const std::vector<ordered_json>& values) {
  std::vector<std::string> texts;
  for (const ordered_json& value : values) texts.push_back(value.dump());
  return b_.choice(from, texts);
}

NodeId JsonGrammar::reference(NodeId from, const ordered_json& schema, const std::string& path, int depth) {
  const ordered_json& value = schema["$ref"];
  if (!value.is_string()) reject(path + ".$ref", "must be a string");
  const std::string target = value.get<std::string>();
  if (!target.starts_with('#')) reject(path + ".$ref", "{} is outside of the schema", in_quotes(target));
  const ordered_json* found = nullptr;
  try {
    const ordered_json::json_pointer pointer(target.substr(1));
    if (root_->contains(pointer)) found = &root_->at(pointer);
  } catch (const ordered_json::exception&) {
    found = nullptr;
  }
  if (found == nullptr) reject(path + ".$ref", "{} is not there", in_quotes(target));
  const auto known = references_.find(found);
  if (known != references_.end()) return b_.call(from, known->second);
  const NodeId start = b_.start_rule();
  references_.emplace(found, start);  // before the body, which may refer to itself
  b_.end_rule(this->schema(start, *found, target.substr(1), depth + 1));
  return b_.call(from, start);
}

NodeId JsonGrammar::typed(NodeId from, const std::string& type, const ordered_json& schema, const std::string& path,
                          int depth) {
  if (type == "object") return object(from, schema, path, depth);
  if (type == "array") return array(from, schema, path, depth);
  if (type == "string") return limited_string(from, schema, path);
  if (type == "boolean") return b_.choice(from, {"true", "false"});
  if (type == "null") return b_.text(from, "null");
  return limited_number(from, schema, path, type == "integer");
}

NodeId JsonGrammar::object(NodeId from, const ordered_json& schema, const std::string& path, int depth) {
  std::vector<Member> known;
  const ordered_json none = ordered_json::object();
  const ordered_json& properties = schema.contains("properties") ? schema["properties"] : none;
  if (!properties.is_object()) reject(path + ".properties", "must be an object");
  std::vector<std::string> required;
  if (const auto list = schema.find("required"); list != schema.end()) {
    if (!list->is_array()) reject(path + ".required", "must be a list of names");
    for (const auto& entry : *list) {
      if (!entry.is_string()) reject(path + ".required", "must be a list of names");
      required.push_back(entry.get<std::string>());
    }
  }
  for (const auto& [key, value] : properties.items()) known.push_back({key, &value, among(required, key)});
  std::optional<const ordered_json*> more;  // schema of other members; a null one: any value
  if (const auto others = schema.find("additionalProperties"); others != schema.end()) {
    if (others->is_boolean()) {
      if (others->get<bool>()) more = nullptr;
    } else {
      more = &*others;
    }
  } else if (known.empty()) {
    more = nullptr;
  }
  for (const std::string& key : required) {
    if (properties.contains(key)) continue;
    if (schema.contains("additionalProperties") && !more)
      reject(path + ".required", "{} is no property", in_quotes(key));
    known.push_back({key, more.value_or(nullptr), true});
  }
  return members(from, known, more, path, depth);
}

NodeId JsonGrammar::member_value(NodeId from, const ordered_json* schema, const std::string& path, int depth) {
  const NodeId value = space(b_.text(from, ":"));
  return space(schema == nullptr ? any_value(value) : this->schema(value, *schema, path, depth + 1));
}

// "{", the members that are known in their order, then others, "}". There are two nodes before each member: `first`,
// where none was written yet, and `later`, where a comma must come before the next.
NodeId JsonGrammar::members(NodeId from, const std::vector<Member>& members,
                            const std::optional<const ordered_json*>& more, const std::string& path, int depth) {
  std::optional<NodeId> first = space(b_.text(from, "{"));
  NodeId later = b_.node();
  for (const Member& member : members) {
    const NodeId key = b_.node();
    if (first) b_.empty(*first, key);
    b_.empty(space(b_.text(later, ",")), key);
    const NodeId name = b_.text(key, ordered_json(member.key).dump());
    const NodeId after = member_value(name, member.schema, path + ".properties." + member.key, depth);
    if (member.required) {
      first.reset();
      later = after;
    } else {
      const NodeId next = b_.node();
      b_.empty(later, next);
      b_.empty(after, next);
      later = next;
    }
  }
  if (more) {
    const NodeId key = b_.node();
    if (first) b_.empty(*first, key);
    const NodeId comma = b_.node();
    b_.empty(later, comma);
    b_.empty(space(b_.text(comma, ",")), key);
    const NodeId name = members.empty() ? string(key) : other_key(key, members);
    const NodeId after = member_value(name, *more, path + ".additionalProperties", depth);
    b_.empty(after, comma);
    later = comma;
  }
  const NodeId close = b_.node();
  if (first) b_.empty(*first, close);
  b_.empty(later, close);
  return b_.text(close, "}");
}

// A key that is none of the known ones. Written without escapes, so that no other spelling of a known key gets through.
NodeId JsonGrammar::other_key(NodeId from, const std::vector<Member>& members) {
  const NodeId end = b_.node();
  const NodeId free = b_.node();
  b_.one_of(free, kStringCharacters, free);
  b_.byte(free, '"', '"', end);
  const NodeId root = b_.text(from, "\"");
  std::map<std::pair<NodeId, char32_t>, NodeId> children;
  std::set<NodeId> inner = {root};
  std::set<NodeId> whole;  // nodes where a known key is complete
  for (const Member& member : members) {
    NodeId at = root;
    for (std::size_t i = 0; i < member.key.size();) {
      const auto [found, added] = children.try_emplace({at, utf8_next(member.key, i)}, 0);
      if (added) found->second = b_.node();
      at = found->second;
      inner.insert(at);
    }
    whole.insert(at);
  }
  for (const NodeId at : inner) {
    CodePoints taken;
    for (auto child = children.lower_bound({at, 0}); child != children.end() && child->first.first == at; ++child) {
      const char32_t c = child->first.second;
      taken.emplace_back(c, c);
      b_.one_of(at, intersection({{c, c}}, kStringCharacters), child->second);
    }
    b_.one_of(at, intersection(kStringCharacters, complement(taken)), free);
    if (!whole.contains(at)) b_.byte(at, '"', '"', end);
  }
  return end;
}

NodeId JsonGrammar::array(NodeId from, const ordered_json& schema, const std::string& path, int depth) {
  const std::int64_t least = count(schema, "minItems", 0, path);
  const std::int64_t most = count(schema, "maxItems", -1, path);
  if (most >= 0 && most < least) reject(path, "\"maxItems\" is less than \"minItems\"");
  // One rule for all items: a long array is a row of calls.
  std::optional<NodeId> rule;
  if (schema.contains("items")) {
    rule = b_.start_rule();
    b_.end_rule(this->schema(*rule, schema["items"], path + ".items", depth + 1));
  }
  const auto item = [&](NodeId at) { return space(rule ? b_.call(at, *rule) : any_value(at)); };
  const NodeId open = space(b_.text(from, "["));
  const NodeId close = b_.node();
  const NodeId end = b_.text(close, "]");
  if (least == 0) b_.empty(open, close);
  if (most == 0) return end;
  NodeId at = item(open);
  std::int64_t made = 1;
  for (; made < least; ++made) at = item(space(b_.text(at, ",")));
  b_.empty(at, close);
  if (most < 0) {
    const NodeId again = item(space(b_.text(at, ",")));
    b_.empty(again, at);
    return end;
  }
  for (; made < most; ++made) {
    at = item(space(b_.text(at, ",")));
    b_.empty(at, close);
  }
  return end;
}

NodeId JsonGrammar::limited_string(NodeId from, const ordered_json& schema, const std::string& path) {
  const bool limited = schema.contains("minLength") || schema.contains("maxLength");
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    if (!pattern->is_string()) reject(path + ".pattern", "must be a string");
    if (limited) reject(path, "\"pattern\" beside a length is not supported");
    const NodeId inside = regex_text(b_, b_.text(from, "\""), pattern->get<std::string>(), RegexText::json, true,
                                     name_ + path + ".pattern");
    return b_.text(inside, "\"");
  }
  if (!limited) return string(from);
  const std::int64_t least = count(schema, "minLength", 0, path);
  const std::int64_t most = count(schema, "maxLength", -1, path);
  if (most >= 0 && most < least) reject(path, "\"maxLength\" is less than \"minLength\"");
  NodeId at = b_.text(from, "\"");
  for (std::int64_t i = 0; i < least; ++i) at = character(at);
  const NodeId close = b_.node();
  if (most < 0) {
    const NodeId loop = b_.node();
    b_.empty(at, loop);
    character_to(loop, loop);
    b_.empty(loop, close);
  } else {
    for (std::int64_t i = least; i < most; ++i) {
      b_.empty(at, close);
      at = character(at);
    }
    b_.empty(at, close);
  }
  return b_.text(close, "\"");
}

NodeId JsonGrammar::limited_number(NodeId from, const ordered_json& schema, const std::string& path, bool whole) {
  std::optional<Bound10> least;
  std::optional<Bound10> most;
  const auto read = [&](const char* keyword, bool exclusive, std::optional<Bound10>& bound) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return;
    if (bound) reject(path, "\"{}\" beside its exclusive form is not supported", keyword);
    const auto text = found->is_number() ? decimals(*found) : std::nullopt;
    if (!text || text->size() > kIntegerDigits + kFractionDigits)
      reject(path + "." + keyword, "must be a number below 10^{}", kIntegerDigits);
    bound = read_bound(*text, exclusive);
    if (bound->whole.size() > kIntegerDigits)
      reject(path + "." + keyword, "must be a number below 10^{}", kIntegerDigits);
  };
  read("minimum", false, least);
  read("exclusiveMinimum", true, least);
  read("maximum", false, most);
  read("exclusiveMaximum", true, most);
  if (!least && !most) return whole ? integer(from) : number(from);
  return number_between(b_, from, least, most, whole);
}

}  // namespace pergola
