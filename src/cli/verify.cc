#include "eval/verify.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/verify_kernels.h"
#include "base/cpu_features.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/table.h"
#include "eval/operation_check.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  std::int64_t tokens = 128;
  bool json = false;
};

/// Everything that `verify` ran.
struct Verification {
  std::vector<KernelCheck> kernels;  ///< of the cpu backend
  std::vector<OperationCheck> operations;
  std::optional<ModelCheck> model;

  std::int64_t misses() const {
    std::int64_t count = model && !model->passed() ? 1 : 0;
    for (const KernelCheck& check : kernels) count += check.passed ? 0 : 1;
    for (const OperationCheck& check : operations) count += check.passed() ? 0 : 1;
    return count;
  }
};

Verification verify(const Arguments& arguments) {
  EngineOptions options = engine_options(arguments.model);
  Verification result;
  BackendOptions device = options.device;
  device.max_rows = kCheckRows;
  if (options.backend == "cpu") {
    const Isa cap = isa_from_name(device.isa).value_or(Isa::amx);  // "auto": as wide as the processor goes
    result.kernels = verify_linear_kernels({.cap = cap}, show_progress());
  }
  message("checking the operations of the {} backend", options.backend);
  result.operations = check_operations(*open_backend(options.backend, device), *open_backend("reference", device));
  if (!arguments.model.folder.empty()) {
    message("comparing {} on two backends", arguments.model.folder);
    result.model = check_model(arguments.model.folder, options, arguments.tokens, show_progress());
  }
  return result;
}

/// One line for all shapes of an instruction set, kind of weight, kernel and row count: the worst error, the best
/// speed.
Table kernel_table(const std::vector<KernelCheck>& checks) {
  struct Line {
    std::int64_t shapes = 0;
    double error = 0;
    double tolerance = 0;
    double weights_per_second = 0;
    bool passed = true;
  };
  std::vector<std::string> order;
  std::map<std::string, std::pair<const KernelCheck*, Line>> lines;
  for (const KernelCheck& check : checks) {
    const std::string key =
        fmt::format("{} {} {} {} {} {}", check.isa, check.precision, check.path, check.weight, check.bits, check.rows);
    auto [entry, is_new] = lines.try_emplace(key, &check, Line{});
    if (is_new) order.push_back(key);
    Line& line = entry->second.second;
    ++line.shapes;
    line.error = std::max(line.error, check.error);
    line.tolerance = check.tolerance;
    line.weights_per_second = std::max(line.weights_per_second, check.weights_per_second);
    line.passed = line.passed && check.passed;
  }
  Table table(
      {"ISA", "precision", "kernel", "weights", "K", "rows", "shapes", "worst error", "tolerance", "Gw/s", "result"});
  for (const std::string& key : order) {
    const auto& [check, line] = lines.at(key);
    table.add({check->isa, check->precision, check->path, check->weight,
               check->bits > 0 ? std::to_string(check->bits) : "", std::to_string(check->rows),
               std::to_string(line.shapes), fmt::format("{:.2g}", line.error), fmt::format("{:.2g}", line.tolerance),
               line.weights_per_second > 0 ? fmt::format("{:.2f}", line.weights_per_second * 1e-9) : "",
               line.passed ? "ok" : "MISS"});
  }
  return table;
}

std::string report(const Verification& result) {
  Table table({"operation", "shape", "error", "tolerance", "time", "result"});
  for (const OperationCheck& check : result.operations) {
    table.add({check.operation, check.shape, fmt::format("{:.2g}", check.error), fmt::format("{:.2g}", check.tolerance),
               human_seconds(check.seconds), check.passed() ? "ok" : "MISS"});
  }
  std::string text = result.kernels.empty() ? "" : kernel_table(result.kernels).text() + "\n";
  text += table.text();
  if (result.model) {
    const ModelCheck& model = *result.model;
    text += fmt::format(
        "model: KL mean {:.2g} (tolerance {:.2g}), median {:.2g} (tolerance {:.2g}) over {} positions: {}\n",
        model.comparison.kl_mean, model.mean_tolerance, model.comparison.kl_median, model.median_tolerance,
        model.comparison.positions, model.passed() ? "ok" : "MISS");
  }
  return text +
         (result.misses() == 0 ? "all within tolerance\n" : fmt::format("{} beyond tolerance\n", result.misses()));
}

nlohmann::ordered_json to_json(const Verification& result) {
  nlohmann::ordered_json json{{"misses", result.misses()},
                              {"kernels", nlohmann::ordered_json::array()},
                              {"operations", nlohmann::ordered_json::array()}};
  for (const KernelCheck& check : result.kernels) {
    json["kernels"].push_back({{"isa", check.isa},
                               {"precision", check.precision},
                               {"kernel", check.path},
                               {"weight", check.weight},
                               {"bits", check.bits},
                               {"rows", check.rows},
                               {"in_features", check.in_features},
                               {"out_features", check.out_features},
                               {"error", check.error},
                               {"tolerance", check.tolerance},
                               {"weights_per_second", check.weights_per_second},
                               {"passed", check.passed}});
  }
  for (const OperationCheck& check : result.operations) {
    json["operations"].push_back({{"operation", check.operation},
                                  {"shape", check.shape},
                                  {"error", check.error},
                                  {"tolerance", check.tolerance},
                                  {"seconds", check.seconds},
                                  {"passed", check.passed()}});
  }
  if (result.model) {
    const ModelCheck& model = *result.model;
    json["model"] = {{"kl_mean", model.comparison.kl_mean},
                     {"kl_median", model.comparison.kl_median},
                     {"top1", model.comparison.top1},
                     {"positions", model.comparison.positions},
                     {"mean_tolerance", model.mean_tolerance},
                     {"median_tolerance", model.median_tolerance},
                     {"passed", model.passed()}};
  }
  return json;
}

int act(const Arguments& arguments) {
  const Verification result = verify(arguments);
  write_output(arguments.json ? to_json(result).dump(2) + "\n" : report(result));
  return result.misses() == 0 ? 0 : kExitError;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("verify", "Check this machine's kernels against the reference");
  command->add_option("MODEL", arguments->model.folder, "Model folder whose logits to compare too");
  add_device_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command->add_option("-n,--tokens", arguments->tokens, "Random tokens to run through MODEL")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(R"(
On the cpu backend every linear kernel is run: instruction set x codebook x K x rows x shapes, with its error and speed
(the table has the worst and the best of all shapes, --json every single run). Then every operation of the backend,
and with MODEL a whole model, against the reference backend. Exit code 1 when a result is beyond the tolerance that docs/numerics.md gives.

Examples:
  pergola verify
  pergola verify models/story --isa avx2
  pergola verify --json > verify.json)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
