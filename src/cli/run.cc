#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/sampling_options.h"
#include "engine/generate.h"
#include "engine/vocabulary_rules.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

struct Arguments {
  ModelArguments model;
  SamplingArguments sampling;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::int64_t context = 0;
  std::int64_t max_tokens = 0;
};

/// A model with everything that turns its tokens into text.
class Writer {
 public:
  explicit Writer(const Arguments& arguments)
      : engine_(load_engine(arguments.model, arguments.context, LogitsOf::last_token)),
        tokenizer_(Tokenizer::load(arguments.model.folder)) {
    const GenerationConfig generation = load_generation_config(arguments.model.folder, engine_->checkpoint().config());
    request_.max_tokens = arguments.max_tokens;
    request_.sampling = sampling_options(arguments.sampling, generation);
    request_.stop_tokens = stop_tokens(generation, tokenizer_);
    request_.mask = sampled_tokens(tokenizer_, engine_->info().vocab_size);
  }

  /// Writes on from `prompt` to standard output, then says how fast it went.
  FinishReason write(const std::string& prompt) {
    request_.prompt = tokenizer_.encode(prompt, true);
    StreamDecoder decoder(tokenizer_, true, request_.prompt);
    const auto on_token = [&](std::int32_t token) { write_output(std::string(decoder.push(token))); };
    const Generation result = generate(*engine_, request_, on_token, interrupt_requested());
    write_output(std::string(decoder.finish()) + "\n");
    message("prefill: {} tokens in {}, {:.1f} tokens/s; decode: {} tokens, {:.1f} tokens/s; {}", result.prompt_tokens,
            human_seconds(result.prefill_seconds), result.prefill_rate(), result.tokens.size(), result.decode_rate(),
            describe(result.finish));
    return result.finish;
  }

 private:
  std::unique_ptr<Engine> engine_;
  Tokenizer tokenizer_;
  GenerationRequest request_;
};

/// One prompt a line until the end of input. Ctrl-C ends the text that is being written; at the prompt it ends the
/// program.
int converse(Writer& writer) {
  message("Type the start of a text and press Enter; Ctrl-C stops a text, Ctrl-D ends.");
  for (std::string line;;) {
    std::fputs("> ", stderr);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    write_output(line);
    writer.write(line);
    catch_interrupts();
  }
  std::fputs("\n", stderr);
  return interrupt_requested().load() ? kExitInterrupted : 0;
}

int act(const Arguments& arguments) {
  const bool interactive = !arguments.prompt && arguments.prompt_file.empty() && ::isatty(STDIN_FILENO) != 0;
  if (interactive) {
    Writer writer(arguments);
    return converse(writer);
  }
  const std::string prompt = arguments.prompt                ? *arguments.prompt
                             : arguments.prompt_file.empty() ? read_standard_input()
                                                             : read_text_file(arguments.prompt_file);
  Writer writer(arguments);
  write_output(prompt);
  return writer.write(prompt) == FinishReason::cancelled ? kExitInterrupted : 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Write text: continue a prompt");
  add_model_options(*command, arguments->model);
  CLI::Option* prompt = command->add_option("-p,--prompt", arguments->prompt, "The start of the text");
  command->add_option("-f,--file", arguments->prompt_file, "Read the start of the text from a file")->excludes(prompt);
  command
      ->add_option("-n,--tokens", arguments->max_tokens,
                   "Most tokens to write (default: until the model ends or the context is full)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--context", arguments->context,
                   "Most tokens of prompt and text (default: 8192, or the model's limit)")
      ->check(CLI::PositiveNumber);
  add_sampling_options(*command, arguments->sampling);
  command->footer(R"(
Without -p and -f the prompt is read from standard input; on a terminal you are asked for one after another.
The text goes to standard output, everything else to standard error. Ctrl-C ends the text, a second one the program.

Examples:
  pergola run models/story -p "Once upon a time" -n 200
  pergola run MODEL -f start.txt --temperature 0.7 --seed 1 > story.txt
  pergola run MODEL -p "2 + 2 =" --greedy -n 4
  echo "Dear Sir," | pergola run MODEL)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
