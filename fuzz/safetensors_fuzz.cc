// A model folder whose safetensors file is hostile. Every input is read twice: as a whole file, and as the header text
// of a file with some data.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "format/checkpoint.h"
#include "format/logits_file.h"
#include "format/summary.h"
#include "format/tensor_values.h"

namespace {

using namespace pergola;

constexpr std::size_t kDataBytes = 4096;

/// A folder with a fixed config.json, removed at exit.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "pergola-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
    std::ofstream(path / "config.json")
        << R"({"architectures":["Fuzz"],"num_hidden_layers":2,"tie_word_embeddings":true})";
  }
  ~Folder() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
};

/// Reads the first and the last byte, so that a span that leaves the file is seen.
void touch(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  volatile std::byte sink = bytes.front();
  sink = bytes.back();
  (void)sink;
}

void read_linear(const Checkpoint& checkpoint, std::string_view key, std::int64_t in, std::int64_t out) {
  if (in <= 0 || out <= 0) return;
  try {
    const LinearView linear = checkpoint.linear(key, in, out);
    if (const TrellisView* view = linear.trellis()) {
      touch(view->trellis);
      touch(view->suh);
      touch(view->svh);
    } else {
      to_floats(*linear.dense());
    }
    checkpoint.check_marker(linear);
    if (linear.bias) to_floats(*linear.bias);
  } catch (const Error&) {
  }
}

void read_entry(const Checkpoint& checkpoint, const TensorEntry& entry) {
  touch(entry.bytes);
  const std::string_view name = entry.name;
  const std::string_view key = name.substr(0, std::min(name.rfind('.'), name.size()));
  if (name.ends_with(".trellis") && entry.shape.size() == 3 && entry.shape[0] < 1000 && entry.shape[1] < 1000) {
    read_linear(checkpoint, key, entry.shape[0] * 16, entry.shape[1] * 16);
    read_linear(checkpoint, key, entry.shape[0] * 16 - 5, entry.shape[1] * 16 - 127);
  }
  if (name.ends_with(".weight") && entry.shape.size() == 2) {
    read_linear(checkpoint, key, entry.shape[1], entry.shape[0]);
    read_linear(checkpoint, key, entry.shape[1], entry.shape[0] - 1);
  }
  if (entry.shape.size() == 3 && !entry.bytes.empty()) {
    try {
      to_floats(*checkpoint
                     .fused_expert(name, entry.shape[0] - 1, entry.shape[1] / 2, entry.shape[1] - entry.shape[1] / 2,
                                   entry.shape[2])
                     .dense());
    } catch (const Error&) {
    }
  }
}

void read_file(const Folder& folder, std::string_view content) {
  const auto file = folder.path / "model.safetensors";
  std::ofstream(file, std::ios::binary) << content;
  try {
    const Checkpoint checkpoint(folder.path);
    for (const TensorEntry& entry : checkpoint.entries()) read_entry(checkpoint, entry);
    summarize(checkpoint);
    const LogitsFile logits(file);
    std::vector<float> row(static_cast<std::size_t>(logits.vocab_size()));
    logits.read(logits.sequences() - 1, logits.positions() - 1, row);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read_file(folder, input);

  const std::uint64_t length = size;
  std::string wrapped(reinterpret_cast<const char*>(&length), sizeof(length));
  wrapped.append(input).append(kDataBytes, '\0');
  read_file(folder, wrapped);
  return 0;
}
