#include "eval/compare.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  std::string reference;
  bool json = false;
};

int act(const Arguments& arguments) {
  const LogitsFile reference(arguments.reference);
  const auto engine = load_engine(arguments.model, reference.positions(), LogitsOf::every_token);
  const Comparison result = compare(*engine, reference, show_progress());
  if (arguments.json) {
    const nlohmann::ordered_json json{{"kl_mean", result.kl_mean},     {"kl_ci", {result.kl_ci.low, result.kl_ci.high}},
                                      {"kl_median", result.kl_median}, {"kl_p99", result.kl_p99},
                                      {"top1", result.top1},           {"positions", result.positions},
                                      {"seconds", result.seconds}};
    write_output(json.dump(2) + "\n");
  } else {
    print_output(
        "KL(reference || model) over {} positions: mean {:.3g} (95 % within {:.3g} .. {:.3g}), median {:.3g}, p99 "
        "{:.3g} nats\n",
        result.positions, result.kl_mean, result.kl_ci.low, result.kl_ci.high, result.kl_median, result.kl_p99);
    print_output("same most likely token: {:.2f} % ({})\n", 100 * result.top1, human_seconds(result.seconds));
  }
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("compare", "Measure how far a model's predictions are from reference logits");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command
      ->add_option("--reference", arguments->reference,
                   "safetensors file with input_ids [windows, length] and logits [windows, length, vocabulary]")
      ->required();
  command->add_flag("--json", arguments->json,
                    "Print JSON: kl_mean, kl_ci, kl_median, kl_p99, top1, positions, seconds");
  command->footer(R"(
Every position of every window counts, and every column of the vocabulary. "pergola logits" writes such files.

Examples:
  pergola logits SOURCE --tokens tokens.safetensors -o source.safetensors
  pergola compare CONVERTED --reference source.safetensors)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
