#include "support/serve_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace pergola::testing {
namespace {

constexpr std::chrono::minutes kPatience{2};

/// The address in the line that a server prints when it is ready; empty before.
std::string url_in(const std::string& text) {
  const std::size_t line = text.find("serving '");
  const std::size_t start = line == std::string::npos ? line : text.find("http", line);
  const std::size_t end = start == std::string::npos ? start : text.find(' ', start);
  return end == std::string::npos ? "" : text.substr(start, end - start);
}

}  // namespace

ServeProcess::ServeProcess(const std::string& program, const std::string& folder,
                           const std::vector<std::string>& more) {
  std::vector<std::string> command{program, "serve", folder, "--port", "0"};
  command.insert(command.end(), more.begin(), more.end());
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  child_ = ::fork();
  if (child_ == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  reader_ = std::thread([this, descriptor = ends[0]] { listen_to(descriptor); });
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return closed_ || !url_in(text_).empty(); });
    url_ = url_in(text_);
  }
  if (!url_.empty()) return;
  ::kill(child_, SIGKILL);
  wait();
  reader_.join();
  throw std::runtime_error(said());
}

ServeProcess::~ServeProcess() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    wait();
  }
  if (reader_.joinable()) reader_.join();
}

void ServeProcess::listen_to(int descriptor) {
  char block[4096];
  for (ssize_t count = 0; (count = ::read(descriptor, block, sizeof block)) > 0;) {
    const std::lock_guard lock(mutex_);
    text_.append(block, static_cast<std::size_t>(count));
    changed_.notify_all();
  }
  ::close(descriptor);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void ServeProcess::signal(int number) const {
  if (child_ > 0) ::kill(child_, number);
}

int ServeProcess::wait() {
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return closed_; })) ::kill(child_, SIGKILL);
  }
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string ServeProcess::said() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

}  // namespace pergola::testing
