#include "quantize/converter.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/architectures.h"
#include "model/qwen3_5.h"
#include "quantize/files.h"
#include "quantize/importance.h"
#include "quantize/layer_calibration.h"
#include "quantize/linear_encoding.h"
#include "quantize/linear_tasks.h"
#include "quantize/mtp_linears.h"
#include "quantize/output_folder.h"
#include "quantize/work_folder.h"
#include "trellis/tile_encoder.h"

namespace pergola {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

class Converter {
 public:
  Converter(const Checkpoint& source, const CalibrationTokens& calibration, const QuantizeOptions& options,
            Backend& backend, ThreadPool& pool, const Progress& progress, TileBatchEncoder* tiles)
      : source_(source),
        calibration_(calibration),
        options_(options),
        backend_(backend),
        pool_(pool),
        progress_(progress),
        model_(read_blueprint(source)),
        tiles_(tiles),
        splits_(source.folder()),
        quantizer_(pool, tiles) {}

  QuantizeReport run(const std::filesystem::path& destination) {
    const Clock::time_point start = Clock::now();
    check(destination);
    const WorkFolder work(options_.work.empty() ? beside(destination, ".work") : options_.work, job(), options_.resume);
    assign_bits(work);

    HiddenStates states = embed_tokens(model_, calibration_.tokens, calibration_.length);
    for (std::size_t index = 0; index < model_.layers.size(); ++index) convert_layer(index, states, work);
    if (options_.head_bits < 16) convert_head(states, work);
    if (options_.mtp_bits < 16) convert_mtp(work);

    const std::filesystem::path assembled = beside(destination, ".assembled");
    report_.bytes =
        OutputFolder(source_, options_, report_.bits, calibration_).write(parts_, biases_, assembled, progress_);
    OutputFolder::publish(assembled, destination);
    if (!options_.keep_work) std::filesystem::remove_all(work.folder());
    report_.seconds = seconds_since(start);
    return std::move(report_);
  }

 private:
  /// A path next to `path`, on the same file system.
  static std::filesystem::path beside(const std::filesystem::path& path, const char* suffix) {
    std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
    if (!normal.has_filename()) normal = normal.parent_path();
    return normal.string() + suffix;
  }

  void check(const std::filesystem::path& destination) const {
    const auto file = source_.folder().string();
    for (const TensorEntry& entry : source_.entries()) {
      if (entry.name.ends_with(".trellis"))
        fail({.file = file, .tensor = entry.name}, "this model is EXL3 already; quantise the model it was made from");
    }
    check_destination(destination);
    const auto width = [](const char* field, int bits) {
      if ((bits < 1 || bits > 8) && bits != 16)
        fail({.field = field}, "{} bits cannot be stored; take 1 to 8, or 16 for fp16", bits);
    };
    width("--head-bits", options_.head_bits);
    width("--mtp-bits", options_.mtp_bits);
    allocate_bits({}, 0, options_.bits, options_.hq);  // for its check
    if (calibration_.sequences() == 0) fail({.field = "--calibration"}, "the calibration text is shorter than one row");
    if (calibration_.length > backend_.max_rows())
      fail({.field = "--columns"}, "rows of {} tokens are longer than a step of {}", calibration_.length,
           backend_.max_rows());
    for (std::int32_t token : calibration_.tokens) {
      if (token < 0 || token >= model_.vocab_size)
        fail({.field = "--calibration"}, "token {} is outside the vocabulary of {}", token, model_.vocab_size);
    }
  }

  /// The destination must not be there yet, or empty; with --resume it may hold the whole result of an earlier run,
  /// which is compared at the end. Its parent must take new folders.
  void check_destination(const std::filesystem::path& destination) const {
    const std::filesystem::path parent = beside(destination, "").parent_path();
    create_folder(parent);
    if (::access(parent.c_str(), W_OK) != 0)
      fail({.file = parent.string()}, "cannot write into this folder: {}", std::strerror(errno));
    if (!std::filesystem::exists(destination)) return;
    if (!std::filesystem::is_directory(destination))
      fail({.file = destination.string()}, "the destination is not a folder; name one that does not exist yet");
    if (!options_.resume && !names_in(destination).empty())
      fail({.file = destination.string()}, "the destination is not empty; name a folder that does not exist yet");
  }

  /// What makes two conversions the same.
  nlohmann::json job() const {
    std::string inventory;
    for (const TensorEntry& entry : source_.entries())
      inventory += fmt::format("{} {} {}\n", entry.name, name_of(entry.dtype), shape_text(entry.shape));
    const auto tokens = std::as_bytes(std::span(calibration_.tokens));
    return {{"source", std::filesystem::absolute(source_.folder()).lexically_normal().string()},
            {"inventory", hash_text(inventory, 0)},
            {"bits", options_.bits},
            {"head_bits", options_.head_bits},
            {"mtp_bits", options_.mtp_bits},
            {"codebook", std::string(name_of(options_.codebook))},
            {"hq", options_.hq},
            {"allocation", static_cast<int>(options_.allocation)},
            {"seed", options_.seed},
            {"shard_bytes", options_.shard_bytes},
            {"calibration", XXH3_64bits(tokens.data(), tokens.size())},
            {"length", calibration_.length},
            {"device", tiles_ != nullptr},
            {"encoder", kTileEncoderVersion}};
  }

  /// K for each group of linears, and how many weights there are.
  void assign_bits(const WorkFolder& work) {
    std::vector<AllocationGroup> groups = allocation_groups(model_);
    const int layers = static_cast<int>(model_.layers.size());
    std::vector<int> bits = allocate_bits(groups, layers, options_.bits, options_.hq);
    if (options_.allocation == Allocation::measured) {
      const std::map<std::string, double> measured = importance(work);
      for (AllocationGroup& group : groups) group.importance = measured.at(group.name);
    }
    if (options_.allocation != Allocation::published)
      bits = allocate_by_importance(groups, layers, total_bits(groups, bits));
    for (std::size_t i = 0; i < groups.size(); ++i) group_bits_[groups[i].name] = bits[i];
    report_.bits = mean_bits(groups, bits);
    for (LayerBlueprint& layer : model_.layers) {
      for (const LinearTask& task : linear_tasks(layer))
        total_weights_ += padded(task.view->in_features) * padded(task.view->out_features);
    }
    if (options_.head_bits < 16) total_weights_ += padded(model_.head.out_features) * padded(model_.head.in_features);
  }

  /// The measured importance of every group; kept in the work folder for a resumed run.
  std::map<std::string, double> importance(const WorkFolder& work) {
    static constexpr const char* kName = "importance";
    const nlohmann::json kept = work.load_measurement(kName);
    if (kept.is_object()) return kept;
    std::map<std::string, double> measured;
    for (const GroupCost& cost :
         measure_importance(source_, model_, calibration_, options_, backend_, pool_, progress_, tiles_))
      measured[cost.group] = cost.importance();
    work.save_measurement(kName, measured);
    return measured;
  }

  NamedLinear encode(const std::string& key, const LinearView& view, int bits, const Hessian* hessian) {
    const Clock::time_point start = Clock::now();
    NamedLinear made{key, encode_linear(quantizer_, key, view, bits, options_, hessian)};
    report_.encode_seconds += seconds_since(start);
    report_.encoded += made.linear.in_features * made.linear.out_features;
    return made;
  }

  /// Counts weights that were encoded now.
  void tell(std::int64_t weights) {
    done_weights_ += weights;
    if (progress_)
      progress_("encoding", static_cast<std::uint64_t>(done_weights_), static_cast<std::uint64_t>(total_weights_));
  }

  /// Takes weights that an earlier run encoded out of the count, so that the time left can be told from the rate.
  void skip(const FinishedPart& part) {
    for (const LinearFacts& linear : part.linears()) total_weights_ -= linear.weights();
  }

  std::vector<NamedLinear> encode_layer(const LayerBlueprint& layer, const std::vector<LinearTask>& tasks,
                                        const HiddenStates& states) {
    const std::map<std::string, Hessian> hessians = collect_hessians(backend_, layer, tasks, states, pool_);
    std::vector<NamedLinear> linears;
    for (const LinearTask& task : tasks) {
      linears.push_back(encode(task.key, *task.view, group_bits_.at(task.group), &hessians.at(task.input)));
      tell(padded(task.view->in_features) * padded(task.view->out_features));
    }
    return linears;
  }

  void convert_layer(std::size_t index, HiddenStates& states, const WorkFolder& work) {
    LayerBlueprint& layer = model_.layers[index];
    const std::string name = fmt::format("layer-{:05}", index);
    const std::vector<LinearTask> tasks = linear_tasks(layer);
    for (const LinearTask& task : tasks) {
      const std::string bias = task.key + ".bias";
      if (task.view->bias && source_.find(bias) == nullptr) biases_.emplace(bias, *task.view->bias);
    }
    std::optional<FinishedPart> part = work.load(name);
    if (part) {
      skip(*part);
    } else {
      part = work.save(name, encode_layer(layer, tasks, states));
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].view->weight = part->view(i);
    auto* net = std::get_if<DeltaNetBlueprint>(&layer.mixer);
    if (net != nullptr && net->qkvz) split_qkvz(splits_, *net);
    run_layer(backend_, layer, states);
    keep(std::move(*part));
  }

  void convert_head(HiddenStates& states, const WorkFolder& work) {
    std::optional<FinishedPart> part = work.load("head");
    if (part) {
      skip(*part);
    } else {
      Hessian hessian(model_.hidden_size);
      run_final_norm(backend_, model_.final_norm, states,
                     [&](std::span<const float> rows) { hessian.add(rows, states.length, pool_); });
      part = work.save("head", {encode(head_key(), model_.head, options_.head_bits, &hessian)});
      tell(padded(model_.head.out_features) * padded(model_.head.in_features));
    }
    keep(std::move(*part));
  }

  void convert_mtp(const WorkFolder& work) {
    const std::vector<LinearView> views = mtp_linears(source_);
    if (views.empty()) return;
    std::optional<FinishedPart> part = work.load("mtp");
    if (!part) {
      std::vector<NamedLinear> linears;
      for (const LinearView& view : views) linears.push_back(encode(view.name, view, options_.mtp_bits, nullptr));
      part = work.save("mtp", linears);
    }
    keep(std::move(*part));
  }

  /// A tied head becomes one of its own.
  std::string head_key() const { return source_.has_linear(model_.head.name) ? model_.head.name : "lm_head"; }

  void keep(FinishedPart part) {
    for (const LinearFacts& linear : part.linears()) {
      report_.linears.push_back(
          {linear.key, linear.weights(), linear.bits, linear.scale, linear.proxy_error, linear.weight_error});
    }
    parts_.push_back(std::move(part));
  }

  const Checkpoint& source_;
  const CalibrationTokens& calibration_;
  const QuantizeOptions& options_;
  Backend& backend_;
  ThreadPool& pool_;
  const Progress& progress_;
  ModelBlueprint model_;
  TileBatchEncoder* tiles_;
  Checkpoint splits_;  ///< owns parts of encoded linears: those of one conversion must not serve another
  LinearQuantizer quantizer_;
  QuantizeReport report_;
  std::vector<FinishedPart> parts_;
  std::map<std::string, DenseView> biases_;  ///< of linears that the source stores fused with others
  std::map<std::string, int> group_bits_;
  std::int64_t total_weights_ = 0;
  std::int64_t done_weights_ = 0;
};

}  // namespace

QuantizeReport quantize_model(const Checkpoint& source, const std::filesystem::path& destination,
                              const CalibrationTokens& calibration, const QuantizeOptions& options, Backend& backend,
                              ThreadPool& pool, const Progress& progress, TileBatchEncoder* tiles) {
  return Converter(source, calibration, options, backend, pool, progress, tiles).run(destination);
}

}  // namespace pergola
