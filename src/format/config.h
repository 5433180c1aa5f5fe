#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pergola {

/// A checked reader over one JSON object of a model folder (config.json, generation_config.json, ...). Getters take the
/// name of a member and fail with one sentence naming the file and the member's full path. A member that is null counts
/// as absent. `require_*` fail when the member is absent; `get_*` return the given default. Cheap to copy: copies share
/// the parsed document.
class Config {
 public:
  /// Reads a JSON file whose top is an object. Throws Error for what read_json_file refuses and for another top.
  static Config load(const std::filesystem::path& path);
  /// The same from memory; `file` is the name for messages.
  static Config parse(std::string_view text, const std::string& file);

  bool has(std::string_view field) const;

  /// Whole numbers in [min, max]. A JSON number with a fraction or exponent is refused.
  std::int64_t require_int(std::string_view field, std::int64_t min, std::int64_t max) const;
  std::int64_t get_int(std::string_view field, std::int64_t absent, std::int64_t min, std::int64_t max) const;
  /// Finite numbers in [min, max]; whole numbers are accepted too.
  double require_float(std::string_view field, double min, double max) const;
  double get_float(std::string_view field, double absent, double min, double max) const;
  bool get_bool(std::string_view field, bool absent) const;
  std::string require_string(std::string_view field) const;
  std::string get_string(std::string_view field, std::string_view absent) const;

  /// Lists; an absent member is an empty list. Every element must be a whole number in [min, max], or a string.
  std::vector<std::int64_t> get_int_list(std::string_view field, std::int64_t min, std::int64_t max) const;
  std::vector<std::string> get_string_list(std::string_view field) const;
  /// A whole number or a list of them, as `eos_token_id` is written.
  std::vector<std::int64_t> get_ints(std::string_view field, std::int64_t min, std::int64_t max) const;

  /// The object at `field`; nothing when absent. Throws Error when it is something else.
  std::optional<Config> object(std::string_view field) const;

  /// The configuration of the text model: the object `text_config` where a file nests it, otherwise this.
  Config text() const;
  /// architectures[0]. Throws Error when it is absent or empty.
  std::string architecture() const;

  /// Throws Error naming the file and the member, for rules between values.
  template <typename... Args>
  [[noreturn]] void reject(std::string_view field, fmt::format_string<Args...> format, Args&&... args) const {
    fail(where(field), format, std::forward<Args>(args)...);
  }
  /// Fails unless `divisor` divides the whole number `value` that was read from `field`; `of` says what the divisor is.
  void check_divides(std::string_view field, std::int64_t value, std::int64_t divisor, std::string_view of) const;

  const std::string& file() const { return file_; }
  /// The object itself, for what the getters do not cover.
  const nlohmann::json& json() const { return *node_; }

 private:
  Config(std::shared_ptr<const nlohmann::json> document, const nlohmann::json* node, std::string file,
         std::string prefix);

  static Config from_document(nlohmann::json document, const std::string& file);
  Where where(std::string_view field) const;
  const nlohmann::json* find(std::string_view field) const;
  const nlohmann::json& require(std::string_view field) const;
  std::int64_t as_int(const nlohmann::json& value, std::string_view field, std::int64_t min, std::int64_t max) const;
  double as_float(const nlohmann::json& value, std::string_view field, double min, double max) const;
  std::string as_string(const nlohmann::json& value, std::string_view field) const;

  std::shared_ptr<const nlohmann::json> document_;
  const nlohmann::json* node_;
  std::string file_;
  std::string prefix_;  ///< of member names in messages, e.g. "text_config."
};

}  // namespace pergola
