#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/thread_pool.h"
#include "format/checkpoint.h"
#include "quantize/converter.h"
#include "support/loaded_tiny.h"
#include "support/tiny_qwen.h"

namespace pergola::testing {

/// A mixture of experts that is converted in a few seconds: both kinds of layer, widths that need padding, fused
/// experts.
inline TinyQwen convertible() {
  TinyQwen tiny;
  tiny.hidden = 128;
  tiny.vocab = 200;
  tiny.full_attention = {false, true};
  tiny.heads = 2;
  tiny.kv_heads = 1;
  tiny.head_dim = 64;
  tiny.key_heads = 1;
  tiny.value_heads = 2;
  tiny.key_dim = 32;
  tiny.value_dim = 64;
  tiny.experts = 2;
  tiny.top_k = 1;
  tiny.intermediate = 96;
  tiny.fused_experts = true;
  return tiny;
}

/// Converts `source` with a little calibration; `threads` for both the backend and the encoder.
inline QuantizeReport convert(const Checkpoint& source, const std::filesystem::path& destination,
                              const QuantizeOptions& options, int threads = 2, const Progress& progress = {}) {
  constexpr std::int64_t kLength = 32;
  const auto backend = open_backend("cpu", {.threads = threads, .precision = Precision::exact, .max_rows = kLength});
  ThreadPool pool(threads);
  return quantize_model(source, destination, {random_tokens(4 * kLength, 200), kLength}, options, *backend, pool,
                        progress);
}

/// Every file below a folder by its name.
inline std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const MappedFile file(entry.path());
    files[entry.path().filename().string()] = {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  return files;
}

}  // namespace pergola::testing
