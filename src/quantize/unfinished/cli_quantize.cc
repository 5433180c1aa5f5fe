#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/table.h"
#include "eval/compare.h"
#include "eval/perplexity.h"
#include "eval/write_logits.h"
#include "quantize/calibration.h"
#include "quantize/converter.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

const std::map<std::string, Codebook> kCodebooks{
    {"3inst", Codebook::three_inst}, {"mcg", Codebook::mcg}, {"mul1", Codebook::mul1}};

struct Arguments {
  ModelArguments model;  ///< its folder is the source
  std::string destination;
  std::vector<std::string> calibration;
  std::int64_t rows = 250;
  std::int64_t columns = 2048;
  QuantizeOptions options;
  std::string codebook = "mul1";
  std::string shard_bytes = "8192MiB";
  std::string work;
  std::int64_t evaluate_windows = 4;
  bool json = false;
};

/// How good the result is on text that it was not calibrated with.
struct Evaluation {
  Comparison comparison;
  double source_perplexity = 0;
  double perplexity = 0;
};

/// The built-in text, or every file that was named (folders: every regular file in them, by name).
std::string calibration_text(const std::vector<std::string>& names) {
  if (names.empty()) return builtin_calibration_text();
  std::string text;
  for (const std::string& name : names) {
    if (!std::filesystem::is_directory(name)) {
      text += read_text_file(name) + "\n";
      continue;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(name)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) text += read_text_file(file.string()) + "\n";
  }
  return text;
}

/// The calibration text in two: what the conversion sees, and the last tenth for the evaluation.
struct Texts {
  std::vector<std::int32_t> calibration;
  std::vector<std::int32_t> held_out;
};

Texts read_texts(const Arguments& arguments) {
  Texts texts{Tokenizer::load(arguments.model.folder).encode(calibration_text(arguments.calibration), false), {}};
  if (arguments.evaluate_windows == 0) return texts;
  const auto cut = texts.calibration.begin() + static_cast<std::ptrdiff_t>(texts.calibration.size() * 9 / 10);
  texts.held_out.assign(cut, texts.calibration.end());
  texts.calibration.erase(cut, texts.calibration.end());
  return texts;
}

Evaluation evaluate(const Arguments& arguments, const std::vector<std::int32_t>& tokens) {
  constexpr std::int64_t kWindow = 512;
  const std::int64_t windows = std::min(arguments.evaluate_windows, std::ssize(tokens) / kWindow);
  if (windows == 0)
    fail({.field = "--evaluate"}, "the held-out tenth of the text has {} tokens, less than one window of {}",
         tokens.size(), kWindow);
  const std::vector<std::int32_t> used(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(windows * kWindow));
  const PerplexityOptions options{kWindow, 0};
  const std::filesystem::path logits = std::filesystem::path(arguments.destination + ".reference-logits");
  Evaluation result;
  {
    const auto source = load_engine(arguments.model, kWindow, 0);
    result.source_perplexity = perplexity(*source, used, options, show_progress()).perplexity;
    write_logits(*source, TokenFile(used, kWindow), logits, show_progress());
  }
  ModelArguments made = arguments.model;
  made.folder = arguments.destination;
  const auto engine = load_engine(made, kWindow, 0);
  result.perplexity = perplexity(*engine, used, options, show_progress()).perplexity;
  result.comparison = compare(*engine, LogitsFile(logits), show_progress());
  std::filesystem::remove(logits);
  return result;
}

double sqnr(double relative_error) {
  return relative_error > 0 ? -10 * std::log10(relative_error) : INFINITY;
}

/// "model.layers.3.mlp.experts.7.down_proj" to "mlp.experts.*.down_proj": linears that are alike.
std::string kind_of(const std::string& key) {
  std::string kind;
  std::string_view rest = key;
  if (const auto layers = rest.find("layers."); layers != std::string_view::npos)
    rest = rest.substr(rest.find('.', layers + 7) + 1);
  for (bool number = false; char c : rest) {
    const bool digit = c >= '0' && c <= '9' && (number || (!kind.empty() && kind.back() == '.'));
    if (digit && !number) kind += '*';
    if (!digit) kind += c;
    number = digit;
  }
  return kind;
}

void print_table(const QuantizeReport& report) {
  struct Sum {
    std::int64_t count = 0, weights = 0;
    double bits = 0, proxy = 0, weight = 0;
  };
  std::map<std::string, Sum> kinds;
  for (const QuantizeReport::Linear& linear : report.linears) {
    Sum& sum = kinds[kind_of(linear.key)];
    const auto weights = static_cast<double>(linear.weights);
    sum.count += 1;
    sum.weights += linear.weights;
    sum.bits += weights * linear.bits;
    sum.proxy += weights * linear.proxy_error;
    sum.weight += weights * linear.weight_error;
  }
  Table table({"linears", "count", "weights", "K", "proxy error", "SQNR of weights"});
  for (const auto& [kind, sum] : kinds) {
    const auto weights = static_cast<double>(sum.weights);
    table.add({kind, fmt::format("{}", sum.count), fmt::format("{:.2f} M", weights / 1e6),
               fmt::format("{:.2f}", sum.bits / weights), fmt::format("{:.3g}", sum.proxy / weights),
               fmt::format("{:.1f} dB", sqnr(sum.weight / weights))});
  }
  write_output(table.text());
}

nlohmann::ordered_json to_json(const QuantizeReport& report, const Evaluation* evaluation) {
  nlohmann::ordered_json json{{"bits", report.bits},
                              {"bytes", report.bytes},
                              {"seconds", report.seconds},
                              {"encoded_weights", report.encoded},
                              {"encode_seconds", report.encode_seconds}};
  if (evaluation != nullptr) {
    json["evaluation"] = {
        {"kl_mean", evaluation->comparison.kl_mean}, {"kl_median", evaluation->comparison.kl_median},
        {"top1", evaluation->comparison.top1},       {"positions", evaluation->comparison.positions},
        {"perplexity", evaluation->perplexity},      {"source_perplexity", evaluation->source_perplexity}};
  }
  for (const QuantizeReport::Linear& linear : report.linears) {
    json["linears"].push_back({{"key", linear.key},
                               {"weights", linear.weights},
                               {"bits", linear.bits},
                               {"scale", linear.scale},
                               {"proxy_error", linear.proxy_error},
                               {"weight_error", linear.weight_error},
                               {"sqnr_db", sqnr(linear.weight_error)}});
  }
  return json;
}

int act(const Arguments& arguments) {
  QuantizeOptions options = arguments.options;
  options.codebook = kCodebooks.at(arguments.codebook);
  options.shard_bytes = parse_bytes(arguments.shard_bytes, "--shard-bytes");
  options.work = arguments.work;
  const Checkpoint source(arguments.model.folder);
  EngineOptions engine = engine_options(arguments.model);
  engine.device.max_rows = arguments.columns;
  engine.device.precision = Precision::exact;
  const auto backend = open_backend(engine.backend, engine.device);
  ThreadPool pool(backend->info().threads > 0 ? backend->info().threads : ThreadPool::available_processors());
  const Texts texts = read_texts(arguments);
  const std::int64_t vocabulary = source.config().text().require_int("vocab_size", 1, 1 << 24);
  const CalibrationTokens calibration =
      make_calibration(texts.calibration, arguments.rows, arguments.columns, vocabulary, options.seed);
  message("calibrating with {} rows of {} tokens", calibration.sequences(), calibration.length);
  if (calibration.sequences() < arguments.rows)
    message("note: the text has no more; name a longer one with --calibration");

  const QuantizeReport report =
      quantize_model(source, arguments.destination, calibration, options, *backend, pool, show_progress());
  std::unique_ptr<Evaluation> evaluation;
  if (arguments.evaluate_windows > 0) evaluation = std::make_unique<Evaluation>(evaluate(arguments, texts.held_out));
  if (arguments.json) {
    write_output(to_json(report, evaluation.get()).dump(2) + "\n");
    return 0;
  }
  print_table(report);
  print_output("{:.2f} bits a weight, {} in {}", report.bits, human_bytes(static_cast<double>(report.bytes)),
               human_seconds(report.seconds));
  if (report.encode_seconds > 0)
    print_output(" ({:.0f} weights/s while encoding)", static_cast<double>(report.encoded) / report.encode_seconds);
  write_output("\n");
  if (evaluation) {
    print_output(
        "held-out text: KL from the source {:.5f} (median {:.5f}), same top token {:.1f} %, perplexity {:.3f} against "
        "{:.3f}\n",
        evaluation->comparison.kl_mean, evaluation->comparison.kl_median, 100 * evaluation->comparison.top1,
        evaluation->perplexity, evaluation->source_perplexity);
  }
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  QuantizeOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("quantize", "Make an EXL3 model from a dense one");
  command->add_option("SOURCE", arguments->model.folder, "Dense model folder (bf16, fp16 or fp32 safetensors)")
      ->required();
  command->add_option("DESTINATION", arguments->destination, "Folder to make; appears whole at the end")->required();
  command->add_option("--bits", options.bits, "Mean bits a weight of everything but the head, such as 3.1")
      ->capture_default_str();
  command->add_option("--head-bits", options.head_bits, "Bits of the head; 16: fp16")->capture_default_str();
  command->add_option("--mtp-bits", options.mtp_bits, "Bits of multi-token-prediction linears; 16: as they are")
      ->capture_default_str();
  command->add_option("--codebook", arguments->codebook, "Codebook")
      ->check(CLI::IsMember(kCodebooks))
      ->capture_default_str();
  command->add_flag("--hq", options.hq, "Two bits more for attention, delta net and shared experts, outside --bits");
  command->add_option("--calibration", arguments->calibration,
                      "Text file or folder of text files (default: the built-in text)");
  command->add_option("--rows", arguments->rows, "Calibration rows")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--columns", arguments->columns, "Tokens of a row")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the random signs and rows")->capture_default_str();
  command->add_option("--shard-bytes", arguments->shard_bytes, "Most bytes of one safetensors file")
      ->capture_default_str();
  command->add_option("--work", arguments->work, "Folder for the restartable state (default: DESTINATION.work)");
  command->add_flag("--resume", options.resume, "Go on where an interrupted conversion stopped");
  command->add_flag("--keep-work", options.keep_work, "Leave the work folder there at the end");
  command
      ->add_option("--evaluate", arguments->evaluate_windows,
                   "Held-out windows of 512 tokens to compare with the source; 0: none")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON with every linear");
  add_device_options(*command, arguments->model);
  command->footer(R"(
Layer by layer, each calibrated on the outputs of the encoded layers before it. Interrupt it at any moment and go on with --resume: the result is the
same to the byte.

Examples:
  pergola quantize story-moe story-4.0 --bits 4 --columns 512 --rows 48
  pergola quantize Qwen3.5-4B Qwen3.5-4B-3.1 --bits 3.1 --hq --calibration my-texts/)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
