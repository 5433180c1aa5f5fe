#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace pergola {

/// A read-only memory mapping of a whole file. Move-only. Throws Error when the file cannot be opened, is not a regular
/// file or cannot be mapped. An empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that `part` of the mapping is not needed in memory any more (it stays readable). Used after
  /// weights were repacked.
  void release(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace pergola
