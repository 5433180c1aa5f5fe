#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pergola {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not wait for its writer
  if (descriptor < 0) fail({.file = path.string()}, "cannot open: {}", std::strerror(errno));
  struct stat facts {};
  const bool regular = ::fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
  if (!regular) {
    ::close(descriptor);
    fail({.file = path.string()}, "not a regular file");
  }
  size_ = static_cast<std::size_t>(facts.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      const int error = errno;
      ::close(descriptor);
      fail({.file = path.string()}, "cannot map {} bytes: {}", size_, std::strerror(error));
    }
    data_ = static_cast<const std::byte*>(address);
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (part.empty()) return;
  // Outwards to what one page fault maps (16 pages by default on Linux): small tensors share pages, and a fault on one
  // maps its neighbours too. What is still needed comes back from the page cache.
  const std::size_t step = 16 * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto start = static_cast<std::size_t>(part.data() - data_);
  const std::size_t first = start / step * step;
  const std::size_t last = std::min(size_, (start + part.size() + step - 1) / step * step);
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace pergola
