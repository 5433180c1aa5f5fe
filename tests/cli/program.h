#pragma once

#include <string>
#include <vector>

#include "support/process.h"

namespace pergola::testing {

/// Runs the built program with these arguments.
inline Outcome pergola(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), PERGOLA_BINARY);
  return run_process(arguments, options);
}

inline const std::string kStory = PERGOLA_SOURCE_DIR "/models/story";

}  // namespace pergola::testing
