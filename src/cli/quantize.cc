#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/tile_encoders.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/svg_plot.h"
#include "cli/table.h"
#include "eval/compare.h"
#include "eval/perplexity.h"
#include "eval/write_logits.h"
#include "model/architectures.h"
#include "quantize/calibration.h"
#include "quantize/converter.h"
#include "quantize/files.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

const std::map<std::string, Codebook> kCodebooks{
    {"3inst", Codebook::three_inst}, {"mcg", Codebook::mcg}, {"mul1", Codebook::mul1}};

const std::map<std::string, Allocation> kAllocations{
    {"published", Allocation::published}, {"balanced", Allocation::balanced}, {"measured", Allocation::measured}};

struct Arguments {
  ModelArguments model;  ///< its folder is the source
  std::string destination;
  std::vector<double> bits{4.0};
  std::vector<std::string> calibration;
  std::int64_t rows = 250;
  std::int64_t columns = 2048;
  QuantizeOptions options;
  std::string codebook = "mul1";
  std::string allocation = "balanced";
  std::string shard_bytes = "8192MiB";
  std::string work;
  std::int64_t evaluate_windows = 4;
  std::string held_out;  ///< file; empty: the last tenth of the calibration text
  std::string plot;      ///< file; empty: none
  bool json = false;
};

/// How good a result is on text that it was not calibrated with.
struct Evaluation {
  Comparison comparison;
  double perplexity = 0;
};

/// One conversion of possibly several.
struct Result {
  std::string folder;
  QuantizeReport report;
  std::optional<Evaluation> evaluation;
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

/// `--calibration random`: for models without a tokenizer.
bool calibrates_at_random(const Arguments& arguments) {
  return arguments.calibration == std::vector<std::string>{"random"};
}

/// Random tokens for the evaluation of a model that was calibrated so; one row each window.
constexpr std::int64_t kRandomHeldOut = 512;

Texts random_texts(const Arguments& arguments, std::int64_t vocabulary) {
  if (!arguments.held_out.empty())
    fail({.field = "--held-out"}, "with --calibration random the evaluation is on random tokens too; leave it out");
  const std::uint64_t seed = arguments.options.seed + 1;
  return {{}, random_calibration(arguments.evaluate_windows, kRandomHeldOut, vocabulary, seed).tokens};
}

Texts read_texts(const Arguments& arguments) {
  if (!std::filesystem::exists(std::filesystem::path(arguments.model.folder) / "tokenizer.json")) {
    fail({.file = arguments.model.folder},
         "there is no tokenizer.json for the calibration text; add it, or calibrate with --calibration random");
  }
  const Tokenizer tokenizer = Tokenizer::load(arguments.model.folder);
  Texts texts{tokenizer.encode(calibration_text(arguments.calibration), false), {}};
  if (arguments.evaluate_windows == 0) return texts;
  if (!arguments.held_out.empty()) {
    texts.held_out = tokenizer.encode(read_text_file(arguments.held_out), false);
    return texts;
  }
  const auto cut = texts.calibration.begin() + static_cast<std::ptrdiff_t>(texts.calibration.size() * 9 / 10);
  texts.held_out.assign(cut, texts.calibration.end());
  texts.calibration.erase(cut, texts.calibration.end());
  return texts;
}

/// Compares results with their source on held-out text. The source runs once, its logits lie in a file meanwhile.
class Evaluator {
 public:
  Evaluator(const Arguments& arguments, const std::vector<std::int32_t>& tokens)
      : model_(arguments.model), logits_(arguments.destination + ".reference-logits") {
    const std::int64_t windows = std::min(arguments.evaluate_windows, std::ssize(tokens) / kWindow);
    if (windows == 0) {
      fail({.field = "--evaluate"},
           "the held-out text has {} tokens, less than one window of {}; give a longer one with --held-out, or 0",
           tokens.size(), kWindow);
    }
    tokens_.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(windows * kWindow));
  }
  ~Evaluator() {
    std::error_code ignored;
    std::filesystem::remove(logits_, ignored);
  }
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  double source_perplexity() const { return source_perplexity_; }

  Evaluation evaluate(const std::string& folder) {
    if (source_perplexity_ == 0) run_source();
    ModelArguments made = model_;
    made.folder = folder;
    const auto engine = load_engine(made, kWindow, LogitsOf::every_token);
    Evaluation result;
    result.perplexity = perplexity(*engine, tokens_, {kWindow, 0}, show_progress()).perplexity;
    result.comparison = compare(*engine, LogitsFile(logits_), show_progress());
    return result;
  }

 private:
  static constexpr std::int64_t kWindow = 512;

  void run_source() {
    const auto source = load_engine(model_, kWindow, LogitsOf::every_token);
    write_logits(*source, TokenFile(tokens_, kWindow), logits_, show_progress());
    source_perplexity_ = perplexity(*source, tokens_, {kWindow, 0}, show_progress()).perplexity;
  }

  ModelArguments model_;
  std::filesystem::path logits_;
  std::vector<std::int32_t> tokens_;
  double source_perplexity_ = 0;
};

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

nlohmann::ordered_json to_json(const Result& result, const Evaluator* evaluator) {
  const QuantizeReport& report = result.report;
  nlohmann::ordered_json json{{"folder", result.folder},
                              {"bits", report.bits},
                              {"bytes", report.bytes},
                              {"seconds", report.seconds},
                              {"encoded_weights", report.encoded},
                              {"encode_seconds", report.encode_seconds}};
  if (result.evaluation) {
    const Comparison& comparison = result.evaluation->comparison;
    json["evaluation"] = {{"kl_mean", comparison.kl_mean},
                          {"kl_median", comparison.kl_median},
                          {"top1", comparison.top1},
                          {"positions", comparison.positions},
                          {"perplexity", result.evaluation->perplexity},
                          {"source_perplexity", evaluator->source_perplexity()}};
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

void print_result(const Result& result, const Evaluator* evaluator) {
  const QuantizeReport& report = result.report;
  print_table(report);
  print_output("{}: {:.2f} bits a weight, {} in {}", result.folder, report.bits,
               human_bytes(static_cast<double>(report.bytes)), human_seconds(report.seconds));
  if (report.encode_seconds > 0)
    print_output(" ({:.0f} weights/s while encoding)", static_cast<double>(report.encoded) / report.encode_seconds);
  write_output("\n");
  if (result.evaluation) {
    const Comparison& comparison = result.evaluation->comparison;
    print_output(
        "held-out text: KL from the source {:.5f} (median {:.5f}), same top token {:.1f} %, perplexity {:.3f} against "
        "{:.3f}\n",
        comparison.kl_mean, comparison.kl_median, 100 * comparison.top1, result.evaluation->perplexity,
        evaluator->source_perplexity());
  }
}

void write_plot(const std::string& path, const std::vector<Result>& results) {
  std::vector<PlotPoint> points;
  for (const Result& result : results) {
    points.push_back({result.report.bits, std::max(result.evaluation->comparison.kl_mean, 1e-9),
                      fmt::format("{:.5f}", result.evaluation->comparison.kl_mean)});
  }
  write_atomically(path, svg_plot("Distance from the source", "bits a weight", "KL divergence (nats)", points));
}

/// The folder of one of several results: below the destination, named by its bits.
std::string folder_of(const Arguments& arguments, double bits) {
  return arguments.bits.size() == 1 ? arguments.destination : fmt::format("{}/{}", arguments.destination, bits);
}

int act(const Arguments& arguments) {
  QuantizeOptions options = arguments.options;
  options.codebook = kCodebooks.at(arguments.codebook);
  options.allocation = kAllocations.at(arguments.allocation);
  options.shard_bytes = parse_bytes(arguments.shard_bytes, "--shard-bytes");
  options.work = arguments.work;
  if (arguments.bits.size() > 1 && !arguments.work.empty())
    fail({.field = "--work"}, "several results (--bits) need a work folder each; leave --work out");
  if (!arguments.plot.empty() && arguments.evaluate_windows == 0)
    fail({.field = "--plot"}, "there is nothing to plot without an evaluation");
  const Checkpoint source(arguments.model.folder);
  EngineOptions engine = engine_options(arguments.model);
  engine.device.max_rows = arguments.columns;
  engine.device.precision = Precision::exact;
  const auto backend = open_backend(engine.backend, engine.device);
  const auto tiles = open_tile_encoder(engine.backend);
  ThreadPool pool(engine.device.threads > 0 ? engine.device.threads : ThreadPool::available_processors());
  const std::int64_t vocabulary = read_blueprint(source).vocab_size;
  const bool random = calibrates_at_random(arguments);
  const Texts texts = random ? random_texts(arguments, vocabulary) : read_texts(arguments);
  const CalibrationTokens calibration =
      random ? random_calibration(arguments.rows, arguments.columns, vocabulary, options.seed)
             : make_calibration(texts.calibration, arguments.rows, arguments.columns, vocabulary, options.seed);
  message("calibrating with {} rows of {} tokens", calibration.sequences(), calibration.length);
  if (calibration.sequences() < arguments.rows)
    message("note: the text has no more; name a longer one with --calibration");
  std::unique_ptr<Evaluator> evaluator;
  if (arguments.evaluate_windows > 0) evaluator = std::make_unique<Evaluator>(arguments, texts.held_out);

  std::vector<Result> results;
  for (double bits : arguments.bits) {
    options.bits = bits;
    Result result{folder_of(arguments, bits), {}, {}};
    result.report =
        quantize_model(source, result.folder, calibration, options, *backend, pool, show_progress(), tiles.get());
    if (evaluator) result.evaluation = evaluator->evaluate(result.folder);
    if (!arguments.json) print_result(result, evaluator.get());
    results.push_back(std::move(result));
  }
  if (!arguments.plot.empty()) write_plot(arguments.plot, results);
  if (arguments.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Result& result : results) json.push_back(to_json(result, evaluator.get()));
    write_output((results.size() == 1 ? json.front() : json).dump(2) + "\n");
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
  command
      ->add_option(
          "--bits", arguments->bits,
          "Mean bits a weight of everything but the head, such as 3.1; several (2,3,4) make several results, in "
          "folders below DESTINATION")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--head-bits", options.head_bits, "Bits of the head; 16: fp16")->capture_default_str();
  command->add_option("--mtp-bits", options.mtp_bits, "Bits of multi-token-prediction linears; 16: as they are")
      ->capture_default_str();
  command->add_option("--codebook", arguments->codebook, "Codebook")
      ->check(CLI::IsMember(kCodebooks))
      ->capture_default_str();
  command->add_flag("--hq", options.hq, "Two bits more for attention, delta net and shared experts, outside --bits");
  command
      ->add_option("--allocate", arguments->allocation,
                   "How bits are spread: balanced (more for what every token passes, less for routed experts), "
                   "measured (by what each group of linears costs: takes three times as long), or "
                   "published (the same for all, spare bits by the rule of the format's own converter)")
      ->check(CLI::IsMember(kAllocations))
      ->capture_default_str();
  command
      ->add_option(
          "--calibration", arguments->calibration,
          "Text file or folder of text files; may be given several times (default: the built-in text); 'random': "
          "random tokens, for a model without a tokenizer")
      ->allow_extra_args(false);
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
  command->add_option("--held-out", arguments->held_out,
                      "Text file for that comparison (default: the last tenth of the calibration text)");
  command->add_option("--plot", arguments->plot, "SVG file to make: KL divergence against bits");
  command->add_flag("--json", arguments->json, "Print JSON with every linear");
  add_device_options(*command, arguments->model);
  command->footer(R"(
Layer by layer, each calibrated on the outputs of the encoded layers before it. Interrupt it at any moment and go on with
--resume: the result is the same to the byte.

Examples:
  pergola quantize story-moe story-4.0 --bits 4 --columns 512 --rows 48
  pergola quantize Qwen3.5-4B Qwen3.5-4B-3.1 --bits 3.1 --hq --calibration my-texts/
  pergola quantize story-moe stories --bits 2,3,4 --plot stories.svg)");
  command->callback([arguments, &action] { action = [arguments] { return act(*arguments); }; });
}

}  // namespace pergola
