#include "format/safetensors_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace pergola {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kHeaderAlignment = 8;

/// u64 length and JSON, padded with spaces so that the data starts at a multiple of 8. `data_bytes` receives the sum of
/// the tensors' sizes.
std::string make_header(std::span<const SafetensorsWriter::Tensor> tensors,
                        const std::map<std::string, std::string>& metadata, std::uint64_t& data_bytes) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  data_bytes = 0;
  for (const auto& tensor : tensors) {
    assert(!header.contains(tensor.name));
    std::uint64_t bytes = size_of(tensor.dtype);
    for (const std::int64_t dimension : tensor.shape) bytes *= static_cast<std::uint64_t>(dimension);
    header[tensor.name] = {
        {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {data_bytes, data_bytes + bytes}}};
    data_bytes += bytes;
  }
  std::string text = header.dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

/// The file that `path` names through any links: replacing a link itself would leave its target old.
std::filesystem::path resolve_target(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail({.file = path.string()}, "cannot write here: it is not a regular file");
  }
  auto target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(resolve_target(path)), temporary_(path_.string() + "." + std::to_string(::getpid()) + ".partial") {
  const std::string header = make_header(tensors, metadata, left_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail({.file = path_.string()}, "cannot create the file: {}", std::strerror(errno));
  try {
    buffer_.reserve(kBufferBytes);
    flush(std::as_bytes(std::span(header)));
  } catch (...) {
    abandon();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  abandon();
}

void SafetensorsWriter::abandon() noexcept {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  descriptor_ = -1;
}

void SafetensorsWriter::fail_writing(int error) {
  abandon();
  fail({.file = path_.string()}, "cannot write the file: {}", std::strerror(error));
}

void SafetensorsWriter::flush(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_writing(count < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  assert(descriptor_ >= 0 && bytes.size() <= left_);
  left_ -= bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    flush(buffer_);
    buffer_.clear();
  }
  if (bytes.size() >= kBufferBytes) return flush(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void SafetensorsWriter::finish() {
  assert(descriptor_ >= 0 && left_ == 0);
  flush(buffer_);
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail_writing(errno);  // EINVAL: the file system cannot
  const bool done = ::close(std::exchange(descriptor_, -1)) == 0 && ::rename(temporary_.c_str(), path_.c_str()) == 0;
  if (done) return;
  const int error = errno;
  ::unlink(temporary_.c_str());
  fail_writing(error);
}

}  // namespace pergola
