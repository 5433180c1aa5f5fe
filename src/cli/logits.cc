#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "eval/write_logits.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  std::string tokens;
  std::string output;
};

int act(const Arguments& arguments) {
  const TokenFile tokens(arguments.tokens);
  const auto engine = load_engine(arguments.model, tokens.length(), LogitsOf::every_token);
  write_logits(*engine, tokens, arguments.output, show_progress());
  message("wrote the logits of {} windows of {} tokens to {}", tokens.windows(), tokens.length(), arguments.output);
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("logits", "Write a model's logits to a file, to compare other models with");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command->add_option("--tokens", arguments->tokens, "safetensors file with input_ids [windows, length], I32 or I64")
      ->required();
  command
      ->add_option("-o,--output", arguments->output,
                   "File to write: input_ids, and logits [windows, length, vocabulary] as F32")
      ->required();
  command->footer(R"(
Examples:
  pergola logits MODEL --tokens tokens.safetensors -o logits.safetensors)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
