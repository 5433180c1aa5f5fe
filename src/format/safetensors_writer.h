#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace pergola {

/// Writes one safetensors file as a stream: the tensors are declared first, then their bytes come in that order in
/// pieces of any size. Until `finish` the bytes lie in a file of another name in the same folder, so the target is
/// either the old file or the whole new one.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
  };

  /// Creates the temporary file and writes the header. Throws Error when the file cannot be created, or `path` names
  /// something that is no regular file. Names must be unique and UTF-8.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const Tensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// Removes the temporary file of a writer that did not finish.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Appends bytes. Throws Error when they cannot be written, e.g. because the disk is full; the temporary file is then
  /// gone already.
  void write(std::span<const std::byte> bytes);

  /// Flushes, and gives the file its name. Every declared byte must have been written. Throws as `write` does.
  void finish();

 private:
  void flush(std::span<const std::byte> bytes);
  void abandon() noexcept;
  [[noreturn]] void fail_writing(int error);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::uint64_t left_ = 0;  ///< declared data bytes that were not given yet
  std::vector<std::byte> buffer_;
};

}  // namespace pergola
