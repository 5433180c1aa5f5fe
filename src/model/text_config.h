#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "format/config.h"

namespace pergola {

/// Bounds that no model comes near; they keep products of any two far from overflow.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxCount = 4096;

/// The configuration of a text model, which remembers the fields that a reader asked for. Afterwards `check_unread`
/// finds fields that would change the mathematics and that nobody asked for.
class TextConfig {
 public:
  explicit TextConfig(const Config& config) : config_(config.text()) {}

  const Config& config() const { return config_; }

  bool has(std::string_view field) { return noted(field).has(field); }
  std::int64_t require_int(std::string_view field, std::int64_t max) { return noted(field).require_int(field, 1, max); }
  std::int64_t get_int(std::string_view field, std::int64_t absent, std::int64_t min, std::int64_t max) {
    return noted(field).get_int(field, absent, min, max);
  }
  /// A count in [1, kMaxCount].
  int count(std::string_view field, std::int64_t absent) {
    return static_cast<int>(noted(field).get_int(field, absent, 1, kMaxCount));
  }
  int require_count(std::string_view field) { return static_cast<int>(require_int(field, kMaxCount)); }
  double get_float(std::string_view field, double absent, double min, double max) {
    return noted(field).get_float(field, absent, min, max);
  }
  bool get_bool(std::string_view field, bool absent) { return noted(field).get_bool(field, absent); }
  std::string get_string(std::string_view field, std::string_view absent) {
    return noted(field).get_string(field, absent);
  }
  std::vector<std::int64_t> get_int_list(std::string_view field, std::int64_t max) {
    return noted(field).get_int_list(field, 0, max);
  }
  std::vector<std::string> get_string_list(std::string_view field) { return noted(field).get_string_list(field); }

  /// Counts the field as asked for without reading it here.
  void note(std::string_view field) { read_.emplace(field); }

  template <typename... Args>
  [[noreturn]] void reject(std::string_view field, fmt::format_string<Args...> format, Args&&... args) const {
    config_.reject(field, format, std::forward<Args>(args)...);
  }

  /// Throws Error naming the first field of a list of known ones that is set to something that changes the
  /// mathematics (neither null, false, 0, empty nor, for a factor, 1) and was not asked for.
  void check_unread() const;

 private:
  const Config& noted(std::string_view field) {
    note(field);
    return config_;
  }

  Config config_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace pergola
