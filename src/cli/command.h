#pragma once

#include <CLI/App.hpp>
#include <functional>

namespace pergola {

/// What the chosen subcommand does; returns the exit code. Throws Error.
using Action = std::function<int()>;

// Each adds its subcommand to `app`; when the command line names it, `action` is set.
void add_run(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_bench_server(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_devices(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);

/// Exit codes beside 0.
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  ///< as shells report Ctrl-C

}  // namespace pergola
