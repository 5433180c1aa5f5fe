#include "format/config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "format/json.h"

namespace pergola {
namespace {

using Json = nlohmann::json;

/// What a value is, for messages.
std::string describe(const Json& value) {
  if (value.is_string()) return fmt::format("the string \"{}\"", value.get_ref<const std::string&>().substr(0, 60));
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  return value.dump();
}

}  // namespace

Config::Config(std::shared_ptr<const Json> document, const Json* node, std::string file, std::string prefix)
    : document_(std::move(document)), node_(node), file_(std::move(file)), prefix_(std::move(prefix)) {}

Config Config::from_document(Json document, const std::string& file) {
  if (!document.is_object()) fail({.file = file}, "expected a JSON object, found {}", describe(document));
  auto shared = std::make_shared<const Json>(std::move(document));
  const Json* node = shared.get();
  return Config(std::move(shared), node, file, "");
}

Config Config::parse(std::string_view text, const std::string& file) {
  return from_document(parse_json(text, file), file);
}

Config Config::load(const std::filesystem::path& path) {
  return from_document(read_json_file(path), path.string());
}

Where Config::where(std::string_view field) const {
  return {.file = file_, .field = prefix_ + std::string(field)};
}

const Json* Config::find(std::string_view field) const {
  const auto place = node_->find(field);
  return place == node_->end() || place->is_null() ? nullptr : &*place;
}

const Json& Config::require(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) reject(field, "the value is missing");
  return *value;
}

bool Config::has(std::string_view field) const {
  return find(field) != nullptr;
}

std::int64_t Config::as_int(const Json& value, std::string_view field, std::int64_t min, std::int64_t max) const {
  if (!value.is_number_integer()) reject(field, "expected a whole number, found {}", describe(value));
  const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (huge || value.get<std::int64_t>() < min || value.get<std::int64_t>() > max) {
    reject(field, "{} is not in [{}, {}]", value.dump(), min, max);
  }
  return value.get<std::int64_t>();
}

double Config::as_float(const Json& value, std::string_view field, double min, double max) const {
  if (!value.is_number()) reject(field, "expected a number, found {}", describe(value));
  const double number = value.get<double>();
  if (!(number >= min && number <= max)) reject(field, "{} is not in [{}, {}]", value.dump(), min, max);
  return number;
}

std::string Config::as_string(const Json& value, std::string_view field) const {
  if (!value.is_string()) reject(field, "expected a string, found {}", describe(value));
  return value.get<std::string>();
}

std::int64_t Config::require_int(std::string_view field, std::int64_t min, std::int64_t max) const {
  return as_int(require(field), field, min, max);
}

std::int64_t Config::get_int(std::string_view field, std::int64_t absent, std::int64_t min, std::int64_t max) const {
  const Json* value = find(field);
  return value == nullptr ? absent : as_int(*value, field, min, max);
}

double Config::require_float(std::string_view field, double min, double max) const {
  return as_float(require(field), field, min, max);
}

double Config::get_float(std::string_view field, double absent, double min, double max) const {
  const Json* value = find(field);
  return value == nullptr ? absent : as_float(*value, field, min, max);
}

bool Config::get_bool(std::string_view field, bool absent) const {
  const Json* value = find(field);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) reject(field, "expected true or false, found {}", describe(*value));
  return value->get<bool>();
}

std::string Config::require_string(std::string_view field) const {
  return as_string(require(field), field);
}

std::string Config::get_string(std::string_view field, std::string_view absent) const {
  const Json* value = find(field);
  return value == nullptr ? std::string(absent) : as_string(*value, field);
}

std::vector<std::int64_t> Config::get_int_list(std::string_view field, std::int64_t min, std::int64_t max) const {
  std::vector<std::int64_t> list;
  const Json* value = find(field);
  if (value == nullptr) return list;
  if (!value->is_array()) reject(field, "expected a list, found {}", describe(*value));
  for (std::size_t i = 0; i < value->size(); ++i)
    list.push_back(as_int((*value)[i], fmt::format("{}[{}]", field, i), min, max));
  return list;
}

std::vector<std::string> Config::get_string_list(std::string_view field) const {
  std::vector<std::string> list;
  const Json* value = find(field);
  if (value == nullptr) return list;
  if (!value->is_array()) reject(field, "expected a list, found {}", describe(*value));
  for (std::size_t i = 0; i < value->size(); ++i)
    list.push_back(as_string((*value)[i], fmt::format("{}[{}]", field, i)));
  return list;
}

std::vector<std::int64_t> Config::get_ints(std::string_view field, std::int64_t min, std::int64_t max) const {
  const Json* value = find(field);
  if (value != nullptr && !value->is_array()) return {as_int(*value, field, min, max)};
  return get_int_list(field, min, max);
}

std::optional<Config> Config::object(std::string_view field) const {
  const Json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) reject(field, "expected an object, found {}", describe(*value));
  return Config(document_, value, file_, fmt::format("{}{}.", prefix_, field));
}

Config Config::text() const {
  auto nested = object("text_config");
  return nested ? *std::move(nested) : *this;
}

std::string Config::architecture() const {
  const auto names = get_string_list("architectures");
  if (names.empty()) reject("architectures", "the model's architecture is not named");
  return names.front();
}

void Config::check_divides(std::string_view field, std::int64_t value, std::int64_t divisor,
                           std::string_view of) const {
  if (divisor <= 0 || value % divisor != 0) reject(field, "{} is not a multiple of {} ({})", value, of, divisor);
}

}  // namespace pergola
