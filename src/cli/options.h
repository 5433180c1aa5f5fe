#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace pergola {

/// Options that every command which runs a model shares.
struct ModelArguments {
  std::string folder;
  std::string backend = "cpu";
  std::string precision = "standard";
  std::string kv_cache_bytes;
  std::string gpu_memory_bytes;
  std::string host_reserve_bytes;
  std::string gpus;  ///< list of GPUs, or "all"; empty: not given
  std::string experts = "auto";
  EngineOptions engine;  ///< filled by the parser where the type allows it; engine_options() completes it
};

/// --backend, --device, --threads, --pin, --isa, --no-graphs, --precision, --kv-cache-8bit.
void add_device_options(CLI::App& command, ModelArguments& arguments);

/// MODEL, the device options, --max-rows, --kv-cache-bytes, --gpu-memory-bytes and --host-reserve-bytes.
void add_model_options(CLI::App& command, ModelArguments& arguments);

/// --ranks, --gpus, --experts.
void add_rank_options(CLI::App& command, ModelArguments& arguments);

/// --experts alone.
void add_experts_option(CLI::App& command, ModelArguments& arguments);

/// The parsed options in the engine's terms. Throws Error for a size that is not one.
EngineOptions engine_options(const ModelArguments& arguments);

/// Whose logits a command looks at.
enum class LogitsOf : std::uint8_t { last_token, every_token };

/// Opens a model, says on standard error what it will take, and loads it with a progress bar. `context` 0 is the
/// default.
std::unique_ptr<Engine> load_engine(const ModelArguments& arguments, std::int64_t context, LogitsOf wants);
/// The same with every option chosen.
std::unique_ptr<Engine> load_engine(const std::string& folder, const EngineOptions& options);

}  // namespace pergola
