#include "engine/machine_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace pergola {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The number at the start of `text` after white space; nothing for "max" and for a file that is not there.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// The number on the line that starts with `key`.
std::optional<std::uint64_t> number_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return leading_number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

/// Names of one version's files in a control group's folder.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cache_keys[2];  ///< page cache in memory.stat, which the kernel can drop
};

constexpr GroupFiles kVersion2{"memory.max", "memory.current", {"inactive_file ", "active_file "}};
constexpr GroupFiles kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file ", "total_active_file "}};

/// What one control group still allows; nothing when it sets no limit.
std::optional<std::uint64_t> left_in_group(const fs::path& folder, const GroupFiles& files) {
  const auto limit = leading_number(read_text(folder / files.limit));
  const auto usage = leading_number(read_text(folder / files.usage));
  if (!limit || !usage) return std::nullopt;
  std::uint64_t used = *usage;
  const std::string statistics = read_text(folder / "memory.stat");
  for (const char* key : files.cache_keys) used -= std::min(used, number_of(statistics, key).value_or(0));
  return *limit - std::min(*limit, used);
}

/// The least that the group `path` and the groups above it allow. Inside a container `path` may name folders that only
/// the host sees; the mount's top is then the container's own group.
std::optional<std::uint64_t> left_in_hierarchy(const fs::path& mount, std::string path, const GroupFiles& files) {
  std::optional<std::uint64_t> least;
  for (;;) {
    const auto left = left_in_group(mount / fs::path(path).relative_path(), files);
    if (left) least = std::min(left.value(), least.value_or(left.value()));
    if (path.empty() || path == "/") return least;
    path = fs::path(path).parent_path().string();
  }
}

std::optional<std::uint64_t> left_in_groups(const fs::path& root) {
  std::optional<std::uint64_t> least;
  std::istringstream lines(read_text(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<std::uint64_t> left;
    if (controllers.empty()) {
      left = left_in_hierarchy(root / "sys/fs/cgroup", path, kVersion2);
    } else if (controllers == "memory") {
      left = left_in_hierarchy(root / "sys/fs/cgroup/memory", path, kVersion1);
    }
    if (left) least = std::min(left.value(), least.value_or(left.value()));
  }
  return least;
}

}  // namespace

AvailableMemory available_memory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  const auto kibibytes = number_of(read_text(meminfo), "MemAvailable:");
  if (!kibibytes) fail({.file = meminfo.string(), .field = "MemAvailable"}, "cannot tell how much memory is available");
  AvailableMemory available{*kibibytes * 1024, "this machine"};
  const auto group = left_in_groups(root);
  if (group && *group < available.bytes) available = {*group, "its control group"};
  return available;
}

}  // namespace pergola
