#include "quantize/converter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/architectures.h"
#include "quantize/layer_runner.h"
#include "quantize/linear_tasks.h"
#include "quantize/mtp_linears.h"
#include "quantize/observing_backend.h"
#include "quantize/output_folder.h"
#include "quantize/work_folder.h"
#include "trellis/decode.h"
#include "trellis/tile_encoder.h"

namespace pergola {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t padded(std::int64_t width) {
  return (width + 127) / 128 * 128;
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

/// A dense weight as floats in its padded widths.
std::vector<float> padded_weight(const LinearView& view) {
  const DenseView& dense = *view.dense();
  const std::int64_t in = padded(view.in_features), out = padded(view.out_features);
  std::vector<float> weight(static_cast<std::size_t>(in * out));
  for (std::int64_t j = 0; j < view.out_features; ++j) {
    for (std::int64_t i = 0; i < view.in_features; ++i)
      weight[static_cast<std::size_t>(j * in + i)] = dense_element(dense, j * dense.columns + i);
  }
  return weight;
}

class Converter {
 public:
  Converter(const Checkpoint& source, const CalibrationTokens& calibration, const QuantizeOptions& options,
            Backend& backend, ThreadPool& pool, const Progress& progress)
      : source_(source),
        calibration_(calibration),
        options_(options),
        backend_(backend),
        pool_(pool),
        progress_(progress),
        model_(read_blueprint(source)),
        quantizer_(pool) {}

  QuantizeReport run(const std::filesystem::path& destination) {
    const Clock::time_point start = Clock::now();
    check(destination);
    const std::filesystem::path work_path =
        options_.work.empty() ? std::filesystem::path(destination.string() + ".work") : options_.work;
    const WorkFolder work(work_path, job(), options_.resume);
    assign_bits();

    HiddenStates states = embed_tokens(model_.embedding, calibration_.tokens, calibration_.length);
    std::vector<NamedLinear> all;
    const auto keep = [&](std::vector<NamedLinear> linears) {
      for (NamedLinear& named : linears) {
        const QuantizedLinear& q = named.linear;
        report_.linears.push_back(
            {named.key, q.in_features * q.out_features, q.bits, q.scale, q.proxy_error, q.weight_error});
        all.push_back(std::move(named));
      }
    };
    for (std::size_t index = 0; index < model_.layers.size(); ++index) keep(convert_layer(index, states, work));
    if (options_.head_bits < 16) keep(convert_head(states, work));
    if (options_.mtp_bits < 16) keep(convert_mtp(work));

    OutputFolder output(source_, options_, report_.bits, calibration_);
    report_.bytes = output.write(all, work.folder() / "assembled", progress_);
    output.publish(work.folder() / "assembled", destination);
    if (!options_.keep_work) std::filesystem::remove_all(work.folder());
    report_.seconds = seconds_since(start);
    return std::move(report_);
  }

 private:
  void check(const std::filesystem::path& destination) const {
    const auto file = source_.folder().string();
    for (const TensorEntry& entry : source_.entries()) {
      if (entry.name.ends_with(".trellis"))
        fail({.file = file, .tensor = entry.name}, "this model is EXL3 already; quantise the model it was made from");
    }
    if (std::filesystem::exists(destination) &&
        !(std::filesystem::is_directory(destination) && std::filesystem::is_empty(destination))) {
      fail({.file = destination.string()}, "the destination exists and is not an empty folder");
    }
    const auto width = [](const char* field, int bits) {
      if ((bits < 1 || bits > 8) && bits != 16)
        fail({.field = field}, "{} bits cannot be stored; take 1 to 8, or 16 for fp16", bits);
    };
    width("--head-bits", options_.head_bits);
    width("--mtp-bits", options_.mtp_bits);
    if (calibration_.sequences() == 0) fail({.field = "--calibration"}, "the calibration text is shorter than one row");
    if (calibration_.length > backend_.max_rows())
      fail({.field = "--columns"}, "rows of {} tokens are longer than a step of {}", calibration_.length,
           backend_.max_rows());
    for (std::int32_t token : calibration_.tokens) {
      if (token < 0 || token >= model_.vocab_size)
        fail({.field = "--calibration"}, "token {} is outside the vocabulary of {}", token, model_.vocab_size);
    }
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
            {"group_bits", options_.group_bits},
            {"seed", options_.seed},
            {"shard_bytes", options_.shard_bytes},
            {"calibration", XXH3_64bits(tokens.data(), tokens.size())},
            {"length", calibration_.length},
            {"encoder", kTileEncoderVersion}};
  }

  void assign_bits() {
    const std::vector<AllocationGroup> groups = allocation_groups(model_);
    std::vector<int> bits = allocate_bits(groups, static_cast<int>(model_.layers.size()), options_.bits, options_.hq);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto given = options_.group_bits.find(groups[i].name);
      if (given != options_.group_bits.end()) bits[i] = given->second;
      group_bits_[groups[i].name] = bits[i];
      total_weights_ += groups[i].weights;
    }
    report_.bits = mean_bits(groups, bits);
    if (options_.head_bits < 16) total_weights_ += padded(model_.head.out_features) * padded(model_.head.in_features);
  }

  NamedLinear encode(const std::string& key, const LinearView& view, int bits, const Hessian* hessian) {
    const std::vector<float> weight = padded_weight(view);
    const LinearJob task{key,  padded(view.in_features), padded(view.out_features),    weight,
                         bits, options_.codebook,        hash_text(key, options_.seed)};
    const Clock::time_point start = Clock::now();
    NamedLinear made{key, quantizer_.encode(task, hessian)};
    report_.encode_seconds += seconds_since(start);
    report_.encoded += std::ssize(weight);
    return made;
  }

  void tell(const std::string& stage, std::int64_t weights) {
    done_weights_ += weights;
    if (progress_)
      progress_(stage, static_cast<std::uint64_t>(done_weights_), static_cast<std::uint64_t>(total_weights_));
  }

  std::vector<NamedLinear> encode_layer(LayerBlueprint& layer, const std::string& stage, const HiddenStates& states) {
    const std::vector<LinearTask> tasks = linear_tasks(layer);
    std::map<std::string, Hessian> hessians;
    for (const LinearTask& task : tasks) hessians.try_emplace(task.input, task.view->in_features);
    {
      std::vector<float> rows;
      ObservingBackend observing(backend_, [&](const std::string& name, const Tensor& x) {
        const auto at = hessians.find(name);
        if (at == hessians.end()) return;
        rows.resize(static_cast<std::size_t>(x.rows * x.columns));
        download_floats(x, rows);
        at->second.add(rows, x.rows, pool_);
      });
      HiddenStates inputs = states;
      run_layer(observing, layer, inputs);
    }
    std::vector<NamedLinear> linears;
    for (const LinearTask& task : tasks) {
      linears.push_back(encode(task.key, *task.view, group_bits_.at(task.group), &hessians.at(task.input)));
      tell(stage, task.view->in_features * task.view->out_features);
    }
    return linears;
  }

  std::vector<NamedLinear> convert_layer(std::size_t index, HiddenStates& states, const WorkFolder& work) {
    LayerBlueprint& layer = model_.layers[index];
    const std::string part = fmt::format("layer-{:05}", index),
                      stage = fmt::format("layer {} of {}", index + 1, model_.layers.size());
    std::optional<std::vector<NamedLinear>> linears = work.load(part);
    const std::vector<LinearTask> tasks = linear_tasks(layer);
    if (linears) {
      for (const LinearTask& task : tasks) tell(stage, task.view->in_features * task.view->out_features);
    } else {
      linears = encode_layer(layer, stage, states);
      work.save(part, *linears);
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].view->weight = (*linears)[i].linear.view();
    run_layer(backend_, layer, states);
    return std::move(*linears);
  }

  std::vector<NamedLinear> convert_head(HiddenStates& states, const WorkFolder& work) {
    std::optional<std::vector<NamedLinear>> linears = work.load("head");
    if (!linears) {
      Hessian hessian(model_.hidden_size);
      run_final_norm(backend_, model_.final_norm, states,
                     [&](std::span<const float> rows) { hessian.add(rows, states.length, pool_); });
      linears.emplace();
      linears->push_back(encode("lm_head", model_.head, options_.head_bits, &hessian));
      work.save("head", *linears);
    }
    tell("head", padded(model_.head.out_features) * padded(model_.head.in_features));
    return std::move(*linears);
  }

  std::vector<NamedLinear> convert_mtp(const WorkFolder& work) {
    const std::vector<LinearView> views = mtp_linears(source_);
    if (views.empty()) return {};
    std::optional<std::vector<NamedLinear>> linears = work.load("mtp");
    if (!linears) {
      linears.emplace();
      for (const LinearView& view : views) linears->push_back(encode(view.name, view, options_.mtp_bits, nullptr));
      work.save("mtp", *linears);
    }
    return std::move(*linears);
  }

  void download_floats(const Tensor& x, std::vector<float>& rows) {
    if (x.dtype == DType::f32) {
      backend_.download(rows.data(), x);
      return;
    }
    std::vector<Half> halves(rows.size());
    backend_.download(halves.data(), x);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = to_float(halves[i]);
  }

  const Checkpoint& source_;
  const CalibrationTokens& calibration_;
  const QuantizeOptions& options_;
  Backend& backend_;
  ThreadPool& pool_;
  const Progress& progress_;
  ModelBlueprint model_;
  LinearQuantizer quantizer_;
  QuantizeReport report_;
  std::map<std::string, int> group_bits_;
  std::int64_t total_weights_ = 0;
  std::int64_t done_weights_ = 0;
};

}  // namespace

QuantizeReport quantize_model(const Checkpoint& source, const std::filesystem::path& destination,
                              const CalibrationTokens& calibration, const QuantizeOptions& options, Backend& backend,
                              ThreadPool& pool, const Progress& progress) {
  return Converter(source, calibration, options, backend, pool, progress).run(destination);
}

}  // namespace pergola
