#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/sampling_options.h"
#include "engine/generate.h"
#include "engine/vocabulary_rules.h"
#include "text/chat/chat_template.h"
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
  bool raw = false;
  bool no_thinking = false;
  std::string system;
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

  const Tokenizer& tokenizer() const { return tokenizer_; }
  void stop_at(std::int32_t token) { request_.stop_tokens.push_back(token); }

  /// Writes on from the prompt's tokens, then says how fast it went. Text goes to `on_text` as soon as it is complete.
  template <typename OnText>
  FinishReason write(std::vector<std::int32_t> prompt, bool skip_special, OnText on_text) {
    request_.prompt = std::move(prompt);
    StreamDecoder decoder(tokenizer_, skip_special, request_.prompt);
    const auto on_token = [&](std::int32_t token) { on_text(std::string(decoder.push(token))); };
    const Generation result = generate(*engine_, request_, on_token, interrupt_requested());
    on_text(std::string(decoder.finish()));
    write_output("\n");
    message("prefill: {} tokens in {}, {:.1f} tokens/s; decode: {} tokens, {:.1f} tokens/s; {}", result.prompt_tokens,
            human_seconds(result.prefill_seconds), result.prefill_rate(), result.tokens.size(), result.decode_rate(),
            describe(result.finish));
    return result.finish;
  }

  /// Continues a text, which is written first.
  FinishReason complete(const std::string& prompt) {
    write_output(prompt);
    return write(tokenizer_.encode(prompt, true), true, write_output);
  }

 private:
  std::unique_ptr<Engine> engine_;
  Tokenizer tokenizer_;
  GenerationRequest request_;
};

/// Answers in turns: a conversation in the model's own format.
class Chat {
 public:
  Chat(Writer& writer, const Arguments& arguments)
      : writer_(writer),
        conversation_(ChatTemplate::load(arguments.model.folder, writer.tokenizer()), arguments.system) {
    if (arguments.no_thinking) conversation_.set_variable("enable_thinking", false);
    const ChatTemplate& chat = conversation_.chat_template();
    if (const auto end = chat.end_of_turn()) writer_.stop_at(*end);
    if (chat.is_fallback()) message("chat template: {}; --raw writes on from a text instead", chat.origin());
  }

  /// Answers a message. Reasoning goes to standard error. A message that cannot be answered is forgotten.
  FinishReason answer(const std::string& text) {
    const std::string prompt = conversation_.begin_turn(text);
    const auto parser = conversation_.parser(prompt);
    ChatAnswer answer;
    bool in_reasoning = false;
    const auto show = [&](const std::vector<ChatDelta>& deltas) {
      for (const ChatDelta& delta : deltas) {
        answer.add(delta);
        const bool reasoning = delta.kind == ChatDelta::Kind::reasoning;
        if (in_reasoning && !reasoning) std::fputs("\n\n", stderr);
        in_reasoning = reasoning;
        if (reasoning) std::fputs(delta.text.c_str(), stderr);
        if (delta.kind == ChatDelta::Kind::content) write_output(delta.text);
      }
    };
    try {
      const bool skip_special = !conversation_.chat_template().format().marks_are_special;
      const FinishReason reason = writer_.write(writer_.tokenizer().encode(prompt, false), skip_special,
                                                [&](const std::string& piece) { show(parser->push(piece)); });
      show(parser->finish());
      conversation_.end_turn(answer);
      return reason;
    } catch (const Error&) {
      conversation_.drop_turn();
      throw;
    }
  }

  void clear() { conversation_.clear(); }

 private:
  Writer& writer_;
  ChatSession conversation_;
};

/// One line after another until the end of input. Ctrl-C ends the text that is being written; at the prompt it ends the
/// program.
template <typename Answer>
int ask(Answer answer) {
  for (std::string line;;) {
    std::fputs("> ", stderr);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    try {
      answer(line);
    } catch (const Error& error) {  // a full context, say: the next line may do
      message("{}", error.what());
    }
    catch_interrupts();
  }
  std::fputs("\n", stderr);
  return interrupt_requested().load() ? kExitInterrupted : 0;
}

int interact(const Arguments& arguments) {
  Writer writer(arguments);
  if (arguments.raw) {
    message("Type the start of a text and press Enter; Ctrl-C stops a text, Ctrl-D ends.");
    return ask([&](const std::string& line) { writer.complete(line); });
  }
  Chat chat(writer, arguments);
  message("Type a message and press Enter; /clear starts over, Ctrl-C stops an answer, Ctrl-D ends.");
  return ask([&](const std::string& line) {
    if (line == "/clear") {
      chat.clear();
    } else {
      chat.answer(line);
    }
  });
}

int act(const Arguments& arguments) {
  if (arguments.raw && (arguments.no_thinking || !arguments.system.empty())) {
    fail({.field = "--raw"}, "a plain text has no system message and no thinking");
  }
  if (!arguments.prompt && arguments.prompt_file.empty() && ::isatty(STDIN_FILENO) != 0) return interact(arguments);
  const std::string prompt = arguments.prompt                ? *arguments.prompt
                             : arguments.prompt_file.empty() ? read_standard_input()
                                                             : read_text_file(arguments.prompt_file);
  if (prompt.empty()) fail({}, "the prompt is empty");
  Writer writer(arguments);
  const FinishReason reason = arguments.raw ? writer.complete(prompt) : Chat(writer, arguments).answer(prompt);
  return reason == FinishReason::cancelled ? kExitInterrupted : 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("run", "Chat with a model, or let it continue a text");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  CLI::Option* prompt = command->add_option("-p,--prompt", arguments->prompt, "The message, or with --raw the text");
  command->add_option("-f,--file", arguments->prompt_file, "Read it from a file")->excludes(prompt);
  command->add_flag("--raw", arguments->raw, "Continue the text as it is, without the model's chat template");
  command->add_option("--system", arguments->system, "A system message before the conversation");
  command->add_flag("--no-thinking", arguments->no_thinking, "Ask the template for answers without reasoning");
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
Without -p and -f the message is read from standard input; on a terminal it becomes a conversation of many turns.
Answers go to standard output, reasoning and everything else to standard error. Ctrl-C ends the answer, a second one the
program.

Examples:
  pergola run MODEL
  pergola run MODEL -p "Why is the sky blue?" --no-thinking
  pergola run models/story --raw -p "Once upon a time" -n 200
  pergola run MODEL --raw -f start.txt --temperature 0.7 --seed 1 > story.txt
  echo "Dear Sir," | pergola run MODEL --raw)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
