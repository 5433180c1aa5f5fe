#include "support/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace pergola::testing {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read_end = ends[0];
      write_end = ends[1];
    }
  }
  ~Pipe() {
    close_write();
    if (read_end >= 0) ::close(read_end);
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

/// Turns the input pipe into a terminal's two ends.
void open_terminal(Pipe& pipe) {
  pipe.close_write();
  ::close(pipe.read_end);
  pipe.write_end = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ::grantpt(pipe.write_end);
  ::unlockpt(pipe.write_end);
  pipe.read_end = ::open(::ptsname(pipe.write_end), O_RDWR | O_NOCTTY | O_CLOEXEC);
}

/// In the child: only calls that are safe after fork.
[[noreturn]] void become_process(char* const* words, int in, int out, int err, const RunOptions& options) {
  ::dup2(in, STDIN_FILENO);
  if (options.out_path) out = ::open(options.out_path->c_str(), O_WRONLY);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (options.file_size_limit) {
    const struct rlimit limit { *options.file_size_limit, *options.file_size_limit };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails, as on a full disk
  }
  ::execv(words[0], words);
  ::_exit(127);
}

/// Appends what is there to read; false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 4096> block;
  const ssize_t count = ::read(descriptor, block.data(), block.size());
  if (count > 0) text.append(block.data(), static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace

Outcome run_process(const std::vector<std::string>& command, const RunOptions& options) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  Pipe in, out, err;
  if (options.terminal_input) open_terminal(in);
  const pid_t child = ::fork();
  if (child == 0) become_process(words.data(), in.read_end, out.write_end, err.write_end, options);
  out.close_write();
  err.close_write();
  // Inputs of these tests are far below a pipe's buffer, so that this cannot block.
  if (!options.input.empty() && ::write(in.write_end, options.input.data(), options.input.size()) < 0)
    ADD_FAILURE() << std::strerror(errno);
  if (!options.terminal_input) in.close_write();  // a terminal that hangs up would signal the program

  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  std::size_t next_signal = 0;
  bool out_open = true;
  bool err_open = true;
  while (out_open || err_open) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program did not end in time";
      ::kill(child, SIGKILL);
      break;
    }
    std::array<pollfd, 2> waits{pollfd{out_open ? out.read_end : -1, POLLIN, 0},
                                pollfd{err_open ? err.read_end : -1, POLLIN, 0}};
    ::poll(waits.data(), waits.size(), 100);
    if (waits[0].revents != 0) out_open = read_some(out.read_end, outcome.out);
    if (waits[1].revents != 0) err_open = read_some(err.read_end, outcome.err);
    while (next_signal < options.signals.size() &&
           outcome.out.find(options.signals[next_signal].first) != std::string::npos) {
      ::kill(child, options.signals[next_signal++].second);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

}  // namespace pergola::testing
