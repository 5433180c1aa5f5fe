#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "build_facts.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/table.h"
#include "eval/benchmark.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  BenchmarkOptions options;
  bool json = false;
  bool csv = false;
  bool markdown = false;
};

std::string rate_text(double bytes_per_second) {
  return human_bytes(bytes_per_second) + "/s";
}

/// Half of the distance between the extremes, as a share of the median.
std::string spread_text(const Measured& value) {
  return fmt::format("{:.1f} %", 50 * (value.high - value.low) / value.median);
}

Table table_of(const Benchmark& result) {
  Table table({"test", "tokens/s", "spread", "bytes/token", "bandwidth", "share"});
  for (const BenchmarkCase& test : result.cases) {
    table.add({test.name(), fmt::format("{:.2f}", test.tokens_per_second.median), spread_text(test.tokens_per_second),
               human_bytes(test.bytes_per_token), rate_text(test.bandwidth.median),
               fmt::format("{:.1f} %", 100 * test.bandwidth_share)});
  }
  return table;
}

nlohmann::ordered_json measured_json(const Measured& value) {
  return {{"median", value.median}, {"low", value.low}, {"high", value.high}};
}

nlohmann::ordered_json to_json(const Benchmark& result, const Engine& engine, const Arguments& arguments) {
  nlohmann::ordered_json json{
      {"version", PERGOLA_VERSION},           {"commit", PERGOLA_COMMIT},
      {"model", arguments.model.folder},      {"backend", engine.device().backend},
      {"device", engine.device().name},       {"instruction_set", engine.device().instruction_set},
      {"threads", engine.device().threads},   {"precision", arguments.model.precision},
      {"max_rows", engine.max_rows()},        {"repeats", arguments.options.repeats},
      {"bandwidth_isa", result.streaming_isa}};
  const TokenBytes& bytes = result.token_bytes;
  json["bytes"] = {{"dense", bytes.dense}, {"experts", bytes.experts}, {"expert_count", bytes.expert_count},
                   {"top_k", bytes.top_k}, {"state", bytes.state},     {"kv_per_token", bytes.kv_per_token}};
  json["tests"] = nlohmann::ordered_json::array();
  for (const BenchmarkCase& test : result.cases) {
    json["tests"].push_back({{"test", test.kind == BenchmarkCase::Kind::prefill ? "prefill" : "decode"},
                             {"tokens", test.tokens},
                             {"depth", test.depth},
                             {"tokens_per_second", measured_json(test.tokens_per_second)},
                             {"bytes_per_token", test.bytes_per_token},
                             {"bandwidth", measured_json(test.bandwidth)},
                             {"bandwidth_share", test.bandwidth_share}});
  }
  return json;
}

int act(const Arguments& arguments) {
  const auto engine = load_engine(arguments.model, benchmark_context(arguments.options), LogitsOf::last_token);
  const Benchmark result = run_benchmark(*engine, arguments.options, show_progress());
  if (arguments.json) {
    write_output(to_json(result, *engine, arguments).dump(2) + "\n");
  } else {
    const Table table = table_of(result);
    write_output(arguments.csv ? table.csv() : arguments.markdown ? table.markdown() : table.text());
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Measure how fast a model runs on this machine");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command->add_option("-p,--prompts", arguments->options.prompts, "Lengths of prompts to prefill")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-n,--tokens", arguments->options.generate, "Tokens to decode; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--depth", arguments->options.depths, "Tokens in the context before")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("-r,--repeats", arguments->options.repeats, "Repeats of each test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::Option* json = command->add_flag("--json", arguments->json, "Print JSON");
  CLI::Option* csv = command->add_flag("--csv", arguments->csv, "Print CSV")->excludes(json);
  command->add_flag("--markdown", arguments->markdown, "Print a Markdown table")->excludes(json)->excludes(csv);
  command->footer(R"(
Every repeat starts cold, on random tokens of its own. Medians; spread is half the distance of the extremes. Beside each
figure stand the bytes that a token reads (packed weights, top-k experts, state, cache), the memory bandwidth that plain
reads reached with the same threads in between, and the share of it that the figure implies.

Examples:
  pergola bench MODEL
  pergola bench MODEL -p 512 -n 64 --depth 0,4096 --threads 8 --json)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
