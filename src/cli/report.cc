#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/opencl/opencl_backend.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/version.h"
#include "eval/benchmark.h"
#include "eval/operation_check.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  ModelArguments model;
  BenchmarkOptions benchmark{.prompts = {512}, .generate = 64, .repeats = 3};
  std::string output = "pergola-report.json";
};

Json device_facts() {
  Json devices = Json::array();
  for (const DeviceListing& device : list_devices())
    devices.push_back({{"backend", device.backend}, {"device", device.device}, {"note", device.note}});
  Json details = Json::array();
  for (const auto& facts : describe_opencl_devices()) {
    Json device;
    for (const auto& [name, value] : facts) device[name] = value;
    details.push_back(std::move(device));
  }
  return {{"devices", std::move(devices)}, {"opencl", std::move(details)}};
}

Json verification(const EngineOptions& options) {
  BackendOptions device = options.device;
  device.max_rows = kCheckRows;
  Json checks = Json::array();
  for (const OperationCheck& check :
       check_operations(*open_backend(options.backend, device), *open_backend("reference", device))) {
    checks.push_back({{"operation", check.operation},
                      {"shape", check.shape},
                      {"error", check.error},
                      {"tolerance", check.tolerance},
                      {"seconds", check.seconds},
                      {"passed", check.passed()}});
  }
  return checks;
}

Json benchmark(const Arguments& arguments) {
  const auto engine = load_engine(arguments.model, benchmark_context(arguments.benchmark), LogitsOf::last_token);
  Json tests = Json::array();
  for (const BenchmarkCase& test : run_benchmark(*engine, arguments.benchmark, show_progress()).cases) {
    tests.push_back({{"test", test.name()},
                     {"tokens_per_second", test.tokens_per_second.median},
                     {"low", test.tokens_per_second.low},
                     {"high", test.tokens_per_second.high},
                     {"bytes_per_token", test.bytes_per_token}});
  }
  return tests;
}

/// A part that fails is part of the report: what an owner sends should show it.
template <typename Make>
void add_part(Json& report, const char* name, const Make& make) {
  message("{}", name);
  try {
    report[name] = make();
  } catch (const Error& error) {
    report[name] = {{"error", error.what()}};
    message("{}: {}", name, error.what());
  }
}

int act(const Arguments& arguments) {
  const EngineOptions options = engine_options(arguments.model);
  Json report{{"version", version_text()},
              {"backend", options.backend},
              {"device", options.device.device},
              {"precision", arguments.model.precision},
              {"model", arguments.model.folder}};
  add_part(report, "machine", device_facts);
  add_part(report, "verify", [&] { return verification(options); });
  add_part(report, "bench", [&] { return benchmark(arguments); });
  std::ofstream file(arguments.output);
  file << report.dump(2) << "\n";
  if (!file.flush()) fail({.file = arguments.output}, "cannot write the report");
  message("wrote {}", arguments.output);
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Gather device facts, verify and bench in one file to send");
  add_model_options(*command, arguments->model);
  command->add_option("-o,--output", arguments->output, "The file to write")->capture_default_str();
  command->footer(R"(
The file holds what the devices say of themselves, every operation compared with the reference, and a short benchmark of
MODEL: what the makers of Pergola need to see how it does on hardware that they do not have. It holds no file names but
MODEL's, and no text.

Example:
  pergola report MODEL --backend opencl)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
