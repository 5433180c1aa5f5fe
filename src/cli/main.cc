#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <new>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/version.h"

namespace pergola {
namespace {

constexpr const char* kExamples = R"(
Examples:
  pergola run models/story -p "Once upon a time"     write on
  pergola serve MODEL                                OpenAI-compatible server on http://127.0.0.1:8080
  pergola inspect MODEL                              what is in a folder, and will it fit
  pergola perplexity MODEL --text eval.txt           how well it predicts a text
  pergola bench MODEL                                how fast it is on this machine
  pergola quantize SOURCE DESTINATION --bits 4       make an EXL3 model from a dense one
  pergola COMMAND --help                             options and examples of a command)";

/// Adds everything that the program knows to `app`.
void describe(CLI::App& app, Action& action) {
  app.name("pergola");
  app.footer(kExamples);
  // A function: listing backends loads the drivers of every device, which no other command wants.
  app.set_version_flag("--version", [] { return version_text(); });
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  add_run(app, action);
  add_serve(app, action);
  add_bench_server(app, action);
  add_inspect(app, action);
  add_bench(app, action);
  add_quantize(app, action);
  add_perplexity(app, action);
  add_compare(app, action);
  add_logits(app, action);
  add_verify(app, action);
  add_devices(app, action);
  add_report(app, action);
}

int parse_and_act(int count, char** words) {
  CLI::App app("Pergola runs EXL3 models: an unmodified model folder in, text out.");
  Action action;
  describe(app, action);
  try {
    app.parse(count, words);
  } catch (const CLI::Success& asked) {  // --help or --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    print_message(fmt::format("pergola: {}; try --help", error.what()));
    return kExitUsage;
  }
  catch_interrupts();
  return action();
}

}  // namespace
}  // namespace pergola

int main(int count, char** words) {
  using namespace pergola;
  try {
    return parse_and_act(count, words);
  } catch (const Interrupted&) {
    print_message("pergola: interrupted");
    return kExitInterrupted;
  } catch (const Error& error) {
    print_message(fmt::format("pergola: {}", error.what()));
  } catch (const std::bad_alloc&) {
    print_message("pergola: out of memory");
  }
  return kExitError;
}
