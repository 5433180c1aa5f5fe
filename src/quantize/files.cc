#include "quantize/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"

namespace pergola {

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path temporary = path;
  temporary += ".part";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) fail({.file = temporary.string()}, "cannot create: {}", std::strerror(errno));
  const std::size_t size = text.size();
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  ::close(descriptor);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  fail({.file = path.string()}, "cannot write {} bytes: {}", size, std::strerror(error));
}

void create_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail({.file = path.string()}, "cannot create this folder: {}", error.message());
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::error_code error;
  std::set<std::string> names;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.insert(entry->path().filename().string());
  if (error) fail({.file = folder.string()}, "cannot read the folder: {}", error.message());
  return names;
}

bool same_files(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::set<std::string> names = names_in(a);
  if (names != names_in(b)) return false;
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    if (!std::filesystem::is_regular_file(a / name) || !std::filesystem::is_regular_file(b / name)) return false;
    const MappedFile left(a / name), right(b / name);
    return std::equal(left.bytes().begin(), left.bytes().end(), right.bytes().begin(), right.bytes().end());
  });
}

}  // namespace pergola
