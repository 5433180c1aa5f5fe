#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/options.h"
#include "eval/perplexity.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  std::string text_file;
  PerplexityOptions options;
  bool json = false;
};

int act(const Arguments& arguments) {
  const std::string text = read_text_file(arguments.text_file);
  const auto engine = load_engine(arguments.model, arguments.options.window, LogitsOf::every_token);
  const std::vector<std::int32_t> tokens = Tokenizer::load(arguments.model.folder).encode(text, true);
  const PerplexityResult result = perplexity(*engine, tokens, arguments.options, show_progress());
  if (arguments.json) {
    const nlohmann::ordered_json json{{"perplexity", result.perplexity},
                                      {"stderr", result.standard_error},
                                      {"tokens_scored", result.tokens_scored},
                                      {"seconds", result.seconds}};
    write_output(json.dump(2) + "\n");
  } else {
    print_output("perplexity {:.4f} +- {:.4f} over {} tokens in {} windows of {} ({})\n", result.perplexity,
                 result.standard_error, result.tokens_scored, result.windows, arguments.options.window,
                 human_seconds(result.seconds));
  }
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command->add_option("--text", arguments->text_file, "Text file, UTF-8")->required();
  command->add_option("--context", arguments->options.window, "Tokens of a window; windows do not overlap")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--chunks", arguments->options.max_windows, "Most windows (default: all that the text has)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", arguments->json, "Print JSON: perplexity, stderr, tokens_scored, seconds");
  command->footer(R"(
The text is encoded as the tokenizer's own rules say and cut into windows. Each starts from nothing and is scored on its
positions 1 to context-1; every column of the vocabulary counts.

Examples:
  pergola perplexity models/story --text book.txt
  pergola perplexity MODEL --text eval.txt --context 512 --chunks 32 --json)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
