#include "cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/console.h"
#include "cli/interrupt.h"

namespace pergola {
namespace {

std::string read_all(int descriptor, const std::string& name) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, block, sizeof block);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR && interrupt_requested().load()) throw Interrupted();
    if (count < 0) fail({.file = name}, "cannot read: {}", std::strerror(errno));
    text.append(block, static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail({.file = path}, "cannot open: {}", std::strerror(errno));
  try {
    std::string text = read_all(descriptor, path);
    ::close(descriptor);
    return text;
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

std::string read_standard_input() {
  return read_all(STDIN_FILENO, "standard input");
}

}  // namespace pergola
