#include "support/checkpoint_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/half.h"

namespace pergola::testing {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "pergola-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void TensorWriter::add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::string bytes) {
  const std::size_t begin = data_.size();
  data_ += bytes;
  header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header_.empty() ? "" : ",",
                         name, name_of(dtype), fmt::join(shape, ","), begin, data_.size());
}

void TensorWriter::add_floats(const std::string& name, std::vector<std::int64_t> shape,
                              const std::vector<float>& values) {
  add(name, DType::f32, std::move(shape), bytes_of(values));
}

void TensorWriter::add_trellis(const std::string& key, std::int64_t in, std::int64_t out, int bits, Codebook codebook,
                               std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto signs = [&](std::int64_t width, float magnitude) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(width));
    for (auto& value : values) value = to_half(random() & 1 ? magnitude : -magnitude).bits;
    return bytes_of(values);
  };
  add(key + ".suh", DType::f16, {in}, signs(in, 1.0f));
  add(key + ".svh", DType::f16, {out}, signs(out, 1.0f / std::sqrt(static_cast<float>(in))));
  std::vector<std::uint16_t> words(static_cast<std::size_t>(in / 16 * (out / 16) * 16 * bits));
  for (auto& word : words) word = static_cast<std::uint16_t>(random());
  add(key + ".trellis", DType::i16, {in / 16, out / 16, 16 * bits}, bytes_of(words));
  if (codebook == Codebook::mcg)
    add(key + ".mcg", DType::i32, {}, bytes_of(std::vector<std::uint32_t>{kMcgMultiplier}));
  if (codebook == Codebook::mul1)
    add(key + ".mul1", DType::i32, {}, bytes_of(std::vector<std::uint32_t>{kMul1Multiplier}));
}

std::string TensorWriter::file() const {
  return raw_safetensors("{" + header_ + "}", data_);
}

std::string raw_safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

std::filesystem::path shared_folder() {
  const char* set = std::getenv("PERGOLA_SHARED");
  const std::filesystem::path folder =
      set != nullptr && *set != '\0' ? set : std::filesystem::path(PERGOLA_SOURCE_DIR) / "../shared";
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored) ? folder : std::filesystem::path();
}

}  // namespace pergola::testing
