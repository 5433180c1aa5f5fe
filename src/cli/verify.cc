#include "eval/verify.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

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
  std::vector<OperationCheck> operations;
  std::optional<ModelCheck> model;

  std::int64_t misses() const {
    std::int64_t count = model && !model->passed() ? 1 : 0;
    for (const OperationCheck& check : operations) count += check.passed() ? 0 : 1;
    return count;
  }
};

Verification verify(const Arguments& arguments) {
  EngineOptions options = engine_options(arguments.model);
  Verification result;
  BackendOptions device = options.device;
  device.max_rows = kCheckRows;
  message("checking the operations of the {} backend", options.backend);
  result.operations = check_operations(*open_backend(options.backend, device), *open_backend("reference", device));
  if (!arguments.model.folder.empty()) {
    message("comparing {} on two backends", arguments.model.folder);
    result.model = check_model(arguments.model.folder, options, arguments.tokens, show_progress());
  }
  return result;
}

std::string report(const Verification& result) {
  Table table({"operation", "shape", "error", "tolerance", "time", ""});
  for (const OperationCheck& check : result.operations) {
    table.add({check.operation, check.shape, fmt::format("{:.2g}", check.error), fmt::format("{:.2g}", check.tolerance),
               human_seconds(check.seconds), check.passed() ? "ok" : "MISS"});
  }
  std::string text = table.text();
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
  nlohmann::ordered_json json{{"misses", result.misses()}, {"operations", nlohmann::ordered_json::array()}};
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
  command->add_option("-n,--tokens", arguments->tokens, "Random tokens to run through MODEL")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(R"(
Exit code 1 when a result is beyond the tolerance that docs/numerics.md gives.

Examples:
  pergola verify
  pergola verify models/story --isa avx2
  pergola verify --json > verify.json)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
