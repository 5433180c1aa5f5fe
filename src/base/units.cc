#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace pergola {
namespace {

/// Three significant digits without an exponent.
std::string three_digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : three_digits(bytes) + " " + kUnits[unit];
}

std::string human_seconds(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 100) return three_digits(seconds) + " s";
  const auto whole = static_cast<long>(std::lround(seconds));
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

std::uint64_t parse_bytes(std::string_view text, std::string_view field) {
  struct Unit {
    std::string_view name;
    double factor;
  };
  static constexpr std::array<Unit, 13> kUnits{{{"", 1},
                                                {"K", 1e3},
                                                {"KB", 1e3},
                                                {"M", 1e6},
                                                {"MB", 1e6},
                                                {"G", 1e9},
                                                {"GB", 1e9},
                                                {"T", 1e12},
                                                {"TB", 1e12},
                                                {"KiB", 1024.0},
                                                {"MiB", 1048576.0},
                                                {"GiB", 1073741824.0},
                                                {"TiB", 1099511627776.0}}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error == std::errc() && value >= 0) {
    for (const Unit& candidate : kUnits) {
      if (candidate.name == unit && value * candidate.factor < 0x1p63)
        return static_cast<std::uint64_t>(value * candidate.factor);
    }
  }
  fail({.field = std::string(field)}, "'{}' is not a size; write for example 512M, 2G or 1.5GiB", text);
}

}  // namespace pergola
