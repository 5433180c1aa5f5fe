#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "support/checkpoint_writer.h"
#include "support/model_runner.h"
#include "support/poison_backend.h"
#include "support/tiny_qwen.h"

namespace pergola::testing {

/// A tiny model written to disk and loaded into a backend whose fresh memory is NaN, ready to run.
struct LoadedTiny {
  explicit LoadedTiny(const TinyQwen& tiny, std::int64_t slots = 1, std::int64_t positions = 256,
                      std::string_view backend_name = "reference",
                      const BackendOptions& options = {.threads = 1, .max_rows = 256})
      : checkpoint(written(tiny, folder)),
        backend(open_backend(backend_name, options)),
        model(Model::load(checkpoint, backend)) {
    runner = std::make_unique<ModelRunner>(*model, backend, slots, positions);
  }

  TempFolder folder;
  Checkpoint checkpoint;
  PoisonBackend backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;

 private:
  static std::filesystem::path written(const TinyQwen& tiny, const TempFolder& folder) {
    tiny.write(folder.path());
    return folder.path();
  }
};

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab, std::uint32_t seed = 9) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab)));
  return tokens;
}

}  // namespace pergola::testing
