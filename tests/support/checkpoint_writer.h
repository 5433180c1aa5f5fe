#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "trellis/codebook.h"

namespace pergola::testing {

/// A folder that lives as long as the object, empty at first.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

void write_text(const std::filesystem::path& path, const std::string& text);

/// The bytes of a vector's elements.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Collects tensors and writes them as safetensors, in the order they were added and without gaps, so that starts are
/// unaligned as in real EXL3 files.
class TensorWriter {
 public:
  /// `bytes` is taken as it is: a wrong length makes a bad file.
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::string bytes);
  void add_floats(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values);

  /// A trellis of random words with random signs; svh has magnitude 1/sqrt(in), so that outputs are of the size of the
  /// input. The codebook's marker is added where it has one. Widths are stored widths.
  void add_trellis(const std::string& key, std::int64_t in, std::int64_t out, int bits, Codebook codebook,
                   std::uint32_t seed = 1);

  /// The file's bytes: header length, header, data.
  std::string file() const;
  void write(const std::filesystem::path& path) const { write_text(path, file()); }

 private:
  std::string header_;
  std::string data_;
};

/// A safetensors file with this header text and these data bytes, whatever they are.
std::string raw_safetensors(const std::string& header, const std::string& data = {});

/// The folder with data and models beside the project, or an empty path when it is not there.
std::filesystem::path shared_folder();

}  // namespace pergola::testing
