#include "backend/opencl/program_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace pergola::opencl {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "pergola-opencl-1";

/// FNV-1a of the bytes (http://www.isthe.com/chongo/tech/comp/fnv/).
std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed = 0xCBF29CE484222325u) {
  for (const char byte : bytes) seed = (seed ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return seed;
}

std::string_view view_of(const std::vector<unsigned char>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// magic, length of key, length of binary, hash of binary; then key and binary.
std::string header_of(std::string_view key, std::string_view binary) {
  return fmt::format("{} {:016x} {:016x} {:016x}\n", kMagic, key.size(), binary.size(), hash_of(binary));
}

}  // namespace

fs::path ProgramCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{:016x}.bin", hash_of(key), hash_of(key, 0x9E3779B97F4A7C15u));
}

std::optional<std::vector<unsigned char>> ProgramCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(file_of(key), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t header = text.find('\n') + 1;
  if (header == 0 || text.size() < header + key.size() || text.compare(header, key.size(), key) != 0)
    return std::nullopt;
  const std::string_view binary = std::string_view(text).substr(header + key.size());
  if (text.compare(0, header, header_of(key, binary)) != 0) return std::nullopt;
  return std::vector<unsigned char>(binary.begin(), binary.end());
}

void ProgramCache::keep(std::string_view key, const std::vector<unsigned char>& binary) const {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  const fs::path temporary = folder_ / fmt::format("{}.{}.part", file_of(key).filename().string(), getpid());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << header_of(key, view_of(binary)) << key << view_of(binary);
    if (!file.flush()) {
      file.close();
      fs::remove(temporary, error);
      return;
    }
  }
  fs::rename(temporary, file_of(key), error);
  if (error) fs::remove(temporary, error);
}

fs::path default_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? fs::path(value) : fs::path();
  };
  if (const fs::path own = variable("PERGOLA_CACHE_DIR"); !own.empty()) return own / "opencl";
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "pergola" / "opencl";
  if (const fs::path home = variable("HOME"); !home.empty()) return home / ".cache" / "pergola" / "opencl";
  return {};
}

}  // namespace pergola::opencl
