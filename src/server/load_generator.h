#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"

namespace pergola {

/// Load for a server that speaks OpenAI's completions.
struct LoadOptions {
  std::string url;             ///< "http://host:port"
  std::string model;           ///< empty: the first that the server lists
  std::string api_key;         ///< empty: none
  double rate = 2;             ///< requests a second, at random times (Poisson): none waits for another
  std::int64_t requests = 32;  ///< of each phase
  std::int64_t prompt_words = 200;
  std::int64_t max_tokens = 64;
  std::uint64_t seed = 1;
};

/// What one request saw. Times in seconds.
struct LoadSample {
  bool good = false;
  std::string error;  ///< where it is not
  double first_token = 0;
  double total = 0;
  std::vector<double> between_tokens;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t answer_tokens = 0;
};

struct LoadPhase {
  std::string name;  ///< "cold": prompts that share no beginning; "cached": the same ones again
  double seconds = 0;
  std::vector<LoadSample> samples;
};

/// Sends the requests and waits for every answer. Throws Error when the server cannot be reached at all; what goes
/// wrong with a request is in its sample.
std::vector<LoadPhase> run_load(const LoadOptions& options, const Progress& progress);

}  // namespace pergola
