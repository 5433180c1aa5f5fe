#include "cli/options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "cli/console.h"

namespace pergola {
namespace {

const std::map<std::string, Precision> kPrecisions{
    {"standard", Precision::standard}, {"exact", Precision::exact}, {"int8", Precision::int8}};

const std::map<std::string, ExpertPlacement> kPlacements{
    {"auto", ExpertPlacement::automatic}, {"split", ExpertPlacement::split}, {"spread", ExpertPlacement::spread}};

/// Long chunks are faster: of 256 experts every one is decoded once a chunk, for 64 tokens of 2,048 with 8 experts
/// each.
constexpr std::int64_t kDefaultMaxRows = 2048;

/// Logits of a whole chunk are large: 0.5 GB for 512 rows of a vocabulary of 248,320.
constexpr std::int64_t kMostLogitRows = 512;

std::string plan_line(const MemoryPlan& plan) {
  std::string parts;
  for (const MemoryPart& part : plan.parts) {
    if (part.bytes > 0)
      parts +=
          fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, human_bytes(static_cast<double>(part.bytes)));
  }
  return fmt::format("memory: {} of {} available ({}); context {}", human_bytes(static_cast<double>(plan.total())),
                     human_bytes(static_cast<double>(plan.available.bytes)), parts, plan.context);
}

std::string device_line(const DeviceInfo& device) {
  std::string line = fmt::format("device: {} on {}", device.backend, device.name);
  if (!device.instruction_set.empty()) line += ", " + device.instruction_set;
  return line + fmt::format(", {} thread{}", device.threads, device.threads == 1 ? "" : "s");
}

/// "0,1" or "all" as numbers.
std::vector<int> parse_gpus(const std::string& text) {
  std::vector<int> gpus;
  if (text == "all") {
    for (const DeviceListing& device : list_devices()) {
      if (device.backend == "cuda" && device.available) gpus.push_back(static_cast<int>(gpus.size()));
    }
    if (gpus.empty()) fail({.field = "--gpus"}, "there is no GPU here; 'pergola devices' says why");
    return gpus;
  }
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    int number = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end || number < 0)
      fail({.field = "--gpus"}, "'{}' is no list of GPUs such as 0,1, nor 'all'", text);
    gpus.push_back(number);
    at = end + 1;
  }
  return gpus;
}

/// Ranks are as many as --ranks says, or as the GPUs that are named; several may share one GPU.
void choose_ranks(const ModelArguments& arguments, EngineOptions& options) {
  options.shards.experts = kPlacements.at(arguments.experts);
  if (arguments.gpus.empty()) return;
  if (options.backend != "cuda")
    fail({.field = "--gpus"}, "the backend {} has no GPUs; use --backend cuda, or --ranks", options.backend);
  options.gpus = parse_gpus(arguments.gpus);
  const auto ranks = static_cast<std::size_t>(options.shards.ranks);
  if (ranks > 1 && options.gpus.size() == 1) options.gpus.assign(ranks, options.gpus[0]);
  if (ranks > 1 && options.gpus.size() != ranks)
    fail({.field = "--gpus"}, "{} GPUs for {} ranks; name one a rank, or one for all", options.gpus.size(), ranks);
  options.shards.ranks = static_cast<int>(options.gpus.size());
}

}  // namespace

void add_experts_option(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option(
          "--experts", arguments.experts,
          "Routed experts over ranks: split (a slice of each on every rank), spread (each whole on one rank), or "
          "auto (split where their width divides)")
      ->check(CLI::IsMember(kPlacements))
      ->capture_default_str()
      ->group("Ranks");
}

void add_rank_options(CLI::App& command, ModelArguments& arguments) {
  constexpr const char* kGroup = "Ranks";
  command
      .add_option("--ranks", arguments.engine.shards.ranks,
                  "Cut the model over this many ranks, threads of this process ('pergola inspect MODEL --gpus N' shows "
                  "how)")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--gpus", arguments.gpus, "GPUs to spread the model over, such as 0,1 or all: a rank on each")
      ->group(kGroup);
  add_experts_option(command, arguments);
}

void add_device_options(CLI::App& command, ModelArguments& arguments) {
  constexpr const char* kGroup = "Device";
  command
      .add_option(
          "--backend", arguments.backend,
          "Where to run: cpu, cuda (an NVIDIA GPU, where it was built in), opencl (any GPU with an OpenCL driver), or "
          "reference (plain loops, slow, the definition of every operation)")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--device", arguments.engine.device.device,
                  "Which device of the opencl backend, as pergola devices numbers them")
      ->check(CLI::Range(0, 255))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--threads", arguments.engine.device.threads, "Threads of the cpu backend (default: every processor)")
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  command.add_flag("--pin", arguments.engine.device.pin_threads, "Bind each thread to one processor")->group(kGroup);
  command.add_option("--isa", arguments.engine.device.isa, "Widest instruction set to use")
      ->check(CLI::IsMember({"auto", "scalar", "avx2", "avx512", "amx"}))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("!--no-graphs", arguments.engine.record_steps,
                "Issue every decode step anew instead of running recorded ones (CUDA graphs)")
      ->group(kGroup);
  command
      .add_option("--precision", arguments.precision,
                  "Arithmetic of the linear layers (docs/numerics.md has the error of each)")
      ->check(CLI::IsMember(kPrecisions))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--kv-cache-8bit", arguments.engine.device.cache_8bit,
                "Keys and values in 8 bits: half the memory of a token (opencl; docs/numerics.md has the error)")
      ->group(kGroup);
}

void add_model_options(CLI::App& command, ModelArguments& arguments) {
  command.add_option("MODEL", arguments.folder, "Model folder: config.json, tokenizer.json, *.safetensors")->required();
  add_device_options(command, arguments);
  arguments.engine.device.max_rows = kDefaultMaxRows;
  constexpr const char* kGroup = "Memory";
  command
      .add_option("--max-rows", arguments.engine.device.max_rows,
                  "Most tokens of one step: long prompts are computed in chunks of it")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--kv-cache-bytes", arguments.kv_cache_bytes,
                  "Size of the KV cache, such as 512M or 2GiB (default: the whole context)")
      ->group(kGroup);
  command
      .add_option("--gpu-memory-bytes", arguments.gpu_memory_bytes,
                  "Most of the GPU's memory to use, such as 20GiB (default: what is free)")
      ->group(kGroup);
  command
      .add_option("--host-reserve-bytes", arguments.host_reserve_bytes,
                  "What a GPU that shares the machine's memory leaves to the rest of it (default: 2GiB)")
      ->group(kGroup);
}

EngineOptions engine_options(const ModelArguments& arguments) {
  EngineOptions options = arguments.engine;
  options.backend = arguments.backend;
  options.device.precision = kPrecisions.at(arguments.precision);
  choose_ranks(arguments, options);
  if (!arguments.kv_cache_bytes.empty())
    options.memory.kv_cache_bytes = parse_bytes(arguments.kv_cache_bytes, "--kv-cache-bytes");
  if (!arguments.gpu_memory_bytes.empty())
    options.gpu_memory_bytes = parse_bytes(arguments.gpu_memory_bytes, "--gpu-memory-bytes");
  if (!arguments.host_reserve_bytes.empty())
    options.host_reserve_bytes = parse_bytes(arguments.host_reserve_bytes, "--host-reserve-bytes");
  return options;
}

std::unique_ptr<Engine> load_engine(const ModelArguments& arguments, std::int64_t context, LogitsOf wants) {
  EngineOptions options = engine_options(arguments);
  options.memory.context = context;
  // One sequence runs here: no step has more rows than its context.
  if (context > 0) options.device.max_rows = std::min(options.device.max_rows, context);
  options.memory.logit_rows = wants == LogitsOf::every_token ? std::min(options.device.max_rows, kMostLogitRows) : 1;
  return load_engine(arguments.folder, options);
}

std::unique_ptr<Engine> load_engine(const std::string& folder, const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  OpenedModel opened = open_model(Checkpoint(folder), options);
  print_message(device_line(opened.backend->info()));
  if (opened.shards)
    message("ranks: {}, experts {}", opened.shards->ranks,
            opened.shards->experts == ExpertPlacement::split ? "split" : "spread");
  print_message(plan_line(opened.memory));
  auto engine = std::make_unique<Engine>(std::move(opened), show_progress());
  message("loaded in {}",
          human_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  return engine;
}

}  // namespace pergola
