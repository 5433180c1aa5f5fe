#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pergola::testing {

/// What came of one run of a program.
struct Outcome {
  int code = -1;   ///< exit code; -1 when a signal ended it
  int signal = 0;  ///< that signal, else 0
  std::string out;
  std::string err;
};

/// How a run differs from the usual.
struct RunOptions {
  std::string input;                      ///< on standard input
  bool terminal_input = false;            ///< standard input is a terminal on which `input` is typed
  std::optional<std::string> out_path;    ///< where standard output goes instead of into `out`
  std::optional<rlim_t> file_size_limit;  ///< RLIMIT_FSIZE
  /// Signals to send: each after the given text appeared on standard output.
  std::vector<std::pair<std::string, int>> signals;
  std::chrono::seconds timeout{120};  ///< then it is killed
};

/// Runs `command` (the program's path, then its arguments) and waits for its end.
Outcome run_process(const std::vector<std::string>& command, const RunOptions& options = {});

}  // namespace pergola::testing
