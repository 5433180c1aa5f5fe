#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace pergola {

/// One tensor of a safetensors file: where it is and what it is. `bytes` lie in the mapped file, at any alignment.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;   ///< empty for a scalar
  std::span<const std::byte> bytes;  ///< exactly the product of the shape times the element size
  std::uint32_t file = 0;            ///< index of the file in its TensorTable
  std::uint64_t offset = 0;          ///< of the first byte, from the start of the file

  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
};

/// "[256, 1024, 2048]", for messages.
std::string shape_text(std::span<const std::int64_t> shape);

/// Longest header that is read, in bytes: twice what 500,000 tensors need.
inline constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{200} << 20;

/// Parses the whole content of a safetensors file (u64 header length, JSON header, data) and returns its tensors in
/// header order, `bytes` pointing into `content`. Gaps between tensors are allowed. Throws Error naming `file` and the
/// tensor for: a file shorter than its header or its tensors, a header that is not UTF-8 JSON of the expected form, an
/// unknown element type, offsets that are negative, out of range, reversed or overlapping, a shape that does not match
/// the byte span, a name that occurs twice.
std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> content, const std::string& file);

/// All tensors of one or several mapped safetensors files. Immutable; entries and their bytes live as long as the
/// table.
class TensorTable {
 public:
  /// Maps the files and reads their headers; no tensor data is touched. Throws as parse_safetensors does, and for a
  /// name that is in two files.
  explicit TensorTable(const std::vector<std::filesystem::path>& files);

  std::span<const TensorEntry> entries() const { return entries_; }
  const TensorEntry* find(std::string_view name) const;
  std::span<const MappedFile> files() const { return files_; }
  const std::filesystem::path& path_of(const TensorEntry& entry) const { return files_[entry.file].path(); }

 private:
  std::vector<MappedFile> files_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;
};

}  // namespace pergola
