#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pergola::opencl {

/// Built programs on disk, so that a second start compiles nothing. An entry belongs to a key: everything that the
/// binary depends on (device, driver, options, source), which is stored with it and compared whole. Entries are written
/// to a temporary file and renamed; one that is damaged or of another key counts as missing and is replaced.
class ProgramCache {
 public:
  /// Without a folder nothing is found and nothing kept.
  explicit ProgramCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  bool keeps() const { return !folder_.empty(); }
  std::optional<std::vector<unsigned char>> find(std::string_view key) const;
  /// A folder that cannot be written to is no error: the next start compiles again.
  void keep(std::string_view key, const std::vector<unsigned char>& binary) const;

  /// Where an entry lies.
  std::filesystem::path file_of(std::string_view key) const;

 private:
  std::filesystem::path folder_;
};

/// $PERGOLA_CACHE_DIR, else pergola in $XDG_CACHE_HOME or ~/.cache; in it `opencl`. Empty where none of them is set.
std::filesystem::path default_cache_folder();

}  // namespace pergola::opencl
