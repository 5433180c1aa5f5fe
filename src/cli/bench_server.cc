#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/table.h"
#include "eval/statistics.h"
#include "server/load_generator.h"

namespace pergola {
namespace {

struct Arguments {
  LoadOptions load;
  std::string plot;
  bool json = false;
};

constexpr double kQuantiles[] = {0.5, 0.9, 0.99};

/// What a phase shows in numbers.
struct Summary {
  std::string name;
  std::size_t good = 0;
  std::size_t bad = 0;
  std::string first_error;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  double answer_rate = 0;  ///< tokens a second over the whole phase
  double prompt_rate = 0;
  std::vector<double> first_token;
  std::vector<double> between_tokens;
  std::vector<double> total;
};

Summary summarize(const LoadPhase& phase) {
  Summary summary{.name = phase.name};
  std::int64_t answer_tokens = 0;
  for (const LoadSample& sample : phase.samples) {
    if (!sample.good) {
      if (summary.bad++ == 0) summary.first_error = sample.error;
      continue;
    }
    ++summary.good;
    summary.prompt_tokens += sample.prompt_tokens;
    summary.cached_tokens += sample.cached_tokens;
    answer_tokens += sample.answer_tokens;
    summary.first_token.push_back(sample.first_token);
    summary.total.push_back(sample.total);
    summary.between_tokens.insert(summary.between_tokens.end(), sample.between_tokens.begin(),
                                  sample.between_tokens.end());
  }
  summary.answer_rate = static_cast<double>(answer_tokens) / phase.seconds;
  summary.prompt_rate = static_cast<double>(summary.prompt_tokens) / phase.seconds;
  return summary;
}

Table table_of(const std::vector<Summary>& summaries) {
  Table table({"phase", "measure", "p50", "p90", "p99"});
  const auto add = [&](const std::string& phase, const char* measure, const std::vector<double>& values) {
    std::vector<std::string> cells{phase, measure};
    for (const double q : kQuantiles) cells.push_back(values.empty() ? "-" : human_seconds(quantile(values, q)));
    table.add(cells);
  };
  for (const Summary& summary : summaries) {
    add(summary.name, "time to first token", summary.first_token);
    add(summary.name, "between tokens", summary.between_tokens);
    add(summary.name, "whole answer", summary.total);
  }
  return table;
}

std::string lines_of(const Summary& summary) {
  std::string text = fmt::format(
      "{}: {} answers, {} failed; {:.1f} answer tokens/s, {:.1f} prompt tokens/s; {} of {} prompt tokens from the "
      "cache\n",
      summary.name, summary.good, summary.bad, summary.answer_rate, summary.prompt_rate, summary.cached_tokens,
      summary.prompt_tokens);
  if (summary.bad > 0) text += "  the first failure: " + summary.first_error + "\n";
  return text;
}

nlohmann::ordered_json quantiles_json(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  return {{"p50", quantile(values, 0.5)}, {"p90", quantile(values, 0.9)}, {"p99", quantile(values, 0.99)}};
}

nlohmann::ordered_json to_json(const std::vector<Summary>& summaries, const Arguments& arguments) {
  nlohmann::ordered_json json{{"url", arguments.load.url},
                              {"rate", arguments.load.rate},
                              {"requests", arguments.load.requests},
                              {"prompt_words", arguments.load.prompt_words},
                              {"max_tokens", arguments.load.max_tokens},
                              {"phases", nlohmann::ordered_json::array()}};
  for (const Summary& summary : summaries) {
    json["phases"].push_back({{"phase", summary.name},
                              {"answers", summary.good},
                              {"failed", summary.bad},
                              {"answer_tokens_per_second", summary.answer_rate},
                              {"prompt_tokens_per_second", summary.prompt_rate},
                              {"prompt_tokens", summary.prompt_tokens},
                              {"cached_tokens", summary.cached_tokens},
                              {"first_token_seconds", quantiles_json(summary.first_token)},
                              {"between_tokens_seconds", quantiles_json(summary.between_tokens)},
                              {"total_seconds", quantiles_json(summary.total)}});
  }
  return json;
}

/// 1, 2 and 5 times powers of ten, from the last one below `low` to the first one above `high`.
std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low)));; decade *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = decade * factor;
      if (tick <= low) ticks.clear();
      ticks.push_back(tick);
      if (tick >= high) return ticks;
    }
  }
}

/// Draws which share of the answers had their first token after how long: a line a phase, as SVG. Empty without
/// answers.
std::string plot_of(const std::vector<Summary>& summaries) {
  constexpr double kWidth = 640;
  constexpr double kHeight = 360;
  constexpr double kMargin = 56;
  static constexpr const char* kColors[] = {"#2b6cb0", "#c05621"};
  std::vector<double> all;
  for (const Summary& summary : summaries)
    all.insert(all.end(), summary.first_token.begin(), summary.first_token.end());
  if (all.empty()) return "";
  const auto [least, most] = std::ranges::minmax(all);
  const std::vector<double> ticks = logarithmic_ticks(std::max(least, 1e-6), std::max({most, 2 * least, 2e-6}));
  const double start = std::log(ticks.front());
  const double width = std::log(ticks.back()) - start;
  const auto x = [&](double seconds) {
    return kMargin + (kWidth - 2 * kMargin) * (std::log(std::max(seconds, ticks.front())) - start) / width;
  };
  const auto y = [&](double share) { return kHeight - kMargin - (kHeight - 2 * kMargin) * share; };
  const auto text = [](double at_x, double at_y, const char* anchor, const std::string& content,
                       const char* color = "#222") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", at_x, at_y, anchor,
                       color, content);
  };
  const auto line = [](double x1, double y1, double x2, double y2) {
    return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1, x2,
                       y2);
  };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg += line(kMargin, y(share), kWidth - kMargin, y(share));
    svg += text(kMargin - 6, y(share) + 4, "end", fmt::format("{:.0f} %", 100 * share));
  }
  for (const double tick : ticks) {
    svg += line(x(tick), y(0), x(tick), y(1));
    svg +=
        text(x(tick), y(0) + 18, "middle", tick < 1 ? fmt::format("{:g} ms", 1e3 * tick) : fmt::format("{:g} s", tick));
  }
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    std::vector<double> sorted = summaries[i].first_token;
    if (sorted.empty()) continue;
    std::ranges::sort(sorted);
    std::string points = fmt::format("{:.1f},{:.1f}", x(sorted.front()), y(0));
    for (std::size_t k = 0; k < sorted.size(); ++k) {
      const double share = static_cast<double>(k + 1) / static_cast<double>(sorted.size());
      points += fmt::format(" {0:.1f},{1:.1f} {0:.1f},{2:.1f}", x(sorted[k]),
                            y(static_cast<double>(k) / static_cast<double>(sorted.size())), y(share));
    }
    const char* color = kColors[i % std::size(kColors)];
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, color);
    svg += text(kWidth - kMargin - 8, y(0) - 10 - 18 * static_cast<double>(summaries.size() - 1 - i), "end",
                summaries[i].name, color);
  }
  svg += text(kWidth / 2, 28, "middle", "Answers that had begun within a time");
  svg += text(kWidth / 2, kHeight - 12, "middle", "time to the first token");
  return svg + "</svg>\n";
}

int act(const Arguments& arguments) {
  LoadOptions options = arguments.load;
  if (const char* key = std::getenv("PERGOLA_API_KEY"); key != nullptr && options.api_key.empty())
    options.api_key = key;
  std::vector<Summary> summaries;
  for (const LoadPhase& phase : run_load(options, show_progress())) summaries.push_back(summarize(phase));
  if (!arguments.plot.empty()) {
    const std::string plot = plot_of(summaries);
    if (plot.empty()) {
      message("note: no plot was written, for no request was answered");
    } else {
      std::ofstream file(arguments.plot);
      file << plot;
      file.close();
      if (!file) fail({.file = arguments.plot}, "cannot write the plot");
    }
  }
  if (arguments.json) {
    write_output(to_json(summaries, arguments).dump(2) + "\n");
  } else {
    for (const Summary& summary : summaries) write_output(lines_of(summary));
    write_output(table_of(summaries).text());
  }
  return std::ranges::any_of(summaries, [](const Summary& summary) { return summary.bad > 0; }) ? kExitError : 0;
}

}  // namespace

void add_bench_server(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  LoadOptions& load = arguments->load;
  CLI::App* command = app.add_subcommand("bench-server", "Measure a running server under load");
  command->add_option("URL", load.url, "http://host:port of any server that speaks OpenAI's completions")->required();
  command->add_option("--model", load.model, "Name of the model (default: the first that the server lists)");
  command->add_option("--api-key", load.api_key, "Key (default: the variable PERGOLA_API_KEY)");
  command->add_option("--rate", load.rate, "Requests a second, at random times")
      ->check(CLI::Range(0.001, 10000.0))
      ->capture_default_str();
  command->add_option("--requests", load.requests, "Requests of each phase")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--prompt-words", load.prompt_words, "Words of each prompt")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--max-tokens", load.max_tokens, "Tokens of each answer")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seed", load.seed, "Other prompts")->capture_default_str();
  command->add_option("--plot", arguments->plot, "Write the times to the first token as an SVG file");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(R"(
Requests come at random times and do not wait for each other, as those of many people do. The first phase sends prompts
that share no beginning, so no cache helps; the second sends the same ones again. Both are reported apart.

Examples:
  pergola bench-server http://127.0.0.1:8080 --rate 4 --requests 100
  pergola bench-server http://127.0.0.1:8080 --prompt-words 2000 --max-tokens 32 --plot first-token.svg)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
