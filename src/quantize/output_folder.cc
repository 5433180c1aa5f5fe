#include "quantize/output_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/half.h"
#include "quantize/files.h"
#include "quantize/stored_tensors.h"
#include "trellis/decode.h"

namespace pergola {

namespace {

/// What happens to a source tensor that is not encoded.
enum class Dense { verbatim, half, half_unless_bf16 };

/// The converter's rule (docs/exl3.md, "What is not quantised").
Dense dense_rule(const std::string& name) {
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  if (name.find(".visual.") != std::string::npos || name.find(".linear_attn.norm.") != std::string::npos)
    return Dense::verbatim;
  for (const char* suffix : {".A_log", ".dt_bias", ".conv1d.weight", ".conv1d.bias"}) {
    if (ends(suffix)) return Dense::verbatim;
  }
  for (const char* suffix : {".gate.weight", ".router.weight", ".e_score_correction_bias", ".sinks",
                             ".shared_expert_gate.weight", ".in_proj_a.weight", ".in_proj_b.weight", ".bias"}) {
    if (ends(suffix)) return Dense::half;
  }
  if (name == "lm_head.weight") return Dense::half;
  if (ends("norm.weight") || ends("embed_tokens.weight")) return Dense::half_unless_bf16;
  return Dense::verbatim;
}

/// The top-level module of a tensor, the unit that a shard never splits: "...layers.7", or the name without its last
/// part.
std::string module_of(const std::string& name) {
  const auto layers = name.find("layers.");
  if (layers != std::string::npos) return name.substr(0, name.find('.', layers + 7));
  return name.substr(0, name.rfind('.'));
}

/// Embedding, layers by number, final norm, head, the rest.
std::pair<int, long> module_rank(const std::string& module) {
  const auto layers = module.find("layers.");
  const bool trunk = module.starts_with("model.") || module.starts_with("language_model.");
  if (module.ends_with("embed_tokens")) return {0, 0};
  if (trunk && layers != std::string::npos && module.find("visual") == std::string::npos)
    return {1, std::stol(module.substr(layers + 7))};
  if (trunk && module.ends_with(".norm")) return {2, 0};
  if (module == "lm_head") return {3, 0};
  return {4, 0};
}

std::vector<Half> as_halves(const DenseView& view, const std::string& file, const std::string& tensor) {
  std::vector<Half> halves;
  for (std::int64_t i = 0; i < view.rows * view.columns; ++i) {
    halves.push_back(to_half(dense_element(view, i)));
    if (!std::isfinite(to_float(halves.back())))
      fail({.file = file, .tensor = tensor}, "element {} does not fit fp16", i);
  }
  return halves;
}

std::string torch_name(DType type) {
  switch (type) {
    case DType::f16:
      return "torch.float16";
    case DType::bf16:
      return "torch.bfloat16";
    case DType::f32:
      return "torch.float32";
    case DType::i16:
      return "torch.int16";
    case DType::i32:
      return "torch.int32";
    default:
      return std::string(name_of(type));
  }
}

struct Module {
  std::string name;
  std::vector<StoredTensor> tensors;
  std::uint64_t bytes = 0;
};

/// Whether a source file is made anew rather than copied.
bool is_replaced(const std::filesystem::path& path) {
  static const std::set<std::string> kNames{"config.json", "quantization_config.json", "model.safetensors.index.json"};
  static const std::set<std::string> kWeights{".safetensors", ".bin", ".ckpt", ".pth", ".pt"};
  return kNames.contains(path.filename().string()) || kWeights.contains(path.extension().string());
}

/// Names of the source tensors that an encoded linear replaces: its weight, alone or fused with its neighbours, with
/// the bias of what was fused; with the scales of fp8 weights.
void add_replaced(const std::string& key, std::set<std::string>& names) {
  for (const char* suffix : {".weight", ".weight_scale_inv", ".weight_scale"}) names.insert(key + suffix);
  const std::string owner = key.substr(0, key.rfind('.'));
  const auto add_fused = [&](const std::string& fused) {
    names.insert({fused + ".weight", fused + ".weight_scale_inv", fused + ".weight_scale", fused + ".bias"});
  };
  if (key.ends_with(".q_proj")) add_fused(owner + ".qkv_proj");
  if (key.ends_with(".gate_proj")) add_fused(owner + ".gate_up_proj");
  const auto experts = key.find(".experts.");
  if (experts == std::string::npos) return;
  for (const char* part : {"gate_up_proj", "down_proj"}) {
    for (const char* suffix : {"", "_bias", "_blocks", "_scales"})
      names.insert(key.substr(0, experts + 9) + part + suffix);
  }
}

/// All tensors of the result by module, in the order in which they are stored. `halves` owns what was converted.
std::vector<Module> collect(const Checkpoint& source, std::span<const FinishedPart> parts,
                            const std::map<std::string, DenseView>& biases, std::deque<std::vector<Half>>& halves) {
  std::map<std::string, Module> modules;
  const auto add = [&](StoredTensor tensor) {
    Module& module = modules[module_of(tensor.declaration.name)];
    module.name = module_of(tensor.declaration.name);
    module.bytes += tensor.bytes.size();
    module.tensors.push_back(std::move(tensor));
  };
  std::set<std::string> replaced;
  for (const FinishedPart& part : parts) {
    for (const TensorEntry& entry : part.tensors().entries())
      add({{entry.name, entry.dtype, entry.shape}, entry.bytes});
    for (const LinearFacts& linear : part.linears()) add_replaced(linear.key, replaced);
  }
  for (const auto& [name, bias] : biases) {
    halves.push_back(as_halves(bias, source.folder().string(), name));
    add({{name, DType::f16, {bias.columns}}, std::as_bytes(std::span(halves.back()))});
  }
  for (const TensorEntry& entry : source.entries()) {
    if (replaced.contains(entry.name)) continue;
    const Dense rule = dense_rule(entry.name);
    const bool convert = is_float_weight(entry.dtype) && entry.dtype != DType::f16 &&
                         (rule == Dense::half || (rule == Dense::half_unless_bf16 && entry.dtype != DType::bf16));
    if (convert) {
      const DenseView view{entry.dtype, 1, entry.elements(), entry.bytes};
      halves.push_back(as_halves(view, source.tensors().path_of(entry).string(), entry.name));
    }
    add({{entry.name, convert ? DType::f16 : entry.dtype, entry.shape},
         convert ? std::as_bytes(std::span(halves.back())) : entry.bytes});
  }
  std::vector<Module> ordered;
  for (auto& [name, module] : modules) ordered.push_back(std::move(module));
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Module& a, const Module& b) { return module_rank(a.name) < module_rank(b.name); });
  for (Module& module : ordered) {
    std::sort(module.tensors.begin(), module.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.declaration.name < b.declaration.name; });
  }
  return ordered;
}

/// Modules by shard: a new one starts when the next module would pass the limit.
std::vector<std::vector<StoredTensor>> shards_of(const std::vector<Module>& modules, std::uint64_t limit) {
  std::vector<std::vector<StoredTensor>> shards(1);
  std::uint64_t size = 0;
  for (const Module& module : modules) {
    if (!shards.back().empty() && size + module.bytes > limit) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().insert(shards.back().end(), module.tensors.begin(), module.tensors.end());
    size += module.bytes;
  }
  return shards;
}

/// The inventory of quantization_config.json: leaf module to its tensors.
nlohmann::ordered_json tensor_storage(const std::vector<Module>& modules, std::span<const FinishedPart> parts) {
  std::map<std::string, const LinearFacts*> by_key;
  for (const FinishedPart& part : parts) {
    for (const LinearFacts& linear : part.linears()) by_key[linear.key] = &linear;
  }
  nlohmann::ordered_json storage = nlohmann::ordered_json::object();
  for (const Module& module : modules) {
    for (const StoredTensor& tensor : module.tensors) {
      const std::string& name = tensor.declaration.name;
      const std::string leaf = name.substr(0, name.rfind('.'));
      nlohmann::ordered_json& entry = storage[leaf];
      entry["stored_tensors"][name] = {{"shape", tensor.declaration.shape},
                                       {"n_bytes", tensor.bytes.size()},
                                       {"dtype", torch_name(tensor.declaration.dtype)}};
      const auto at = by_key.find(leaf);
      if (at == by_key.end()) continue;
      entry["quant_format"] = "exl3";
      entry["bits_per_weight"] = at->second->bits;
      if (at->second->codebook == Codebook::mcg) entry["mcg_multiplier"] = kMcgMultiplier;
      if (at->second->codebook == Codebook::mul1) entry["mul1_multiplier"] = kMul1Multiplier;
    }
  }
  return storage;
}

/// The object that config.json and quantization_config.json share.
nlohmann::ordered_json quantization_config(const QuantizeOptions& options, double bits,
                                           const CalibrationTokens& calibration) {
  return {{"quant_method", "exl3"},
          {"version", "1.4.1"},  // of the format's own converter, whose layout this is
          {"bits", std::round(bits * 100) / 100},
          {"head_bits", options.head_bits},
          {"calibration", {{"rows", calibration.sequences()}, {"cols", calibration.length}}},
          {"out_scales", "always"},
          {"codebook", std::string(name_of(options.codebook))},
          {"producer", "pergola"}};
}

/// Writes every shard and, when there are several, their index. Returns the files' bytes.
std::uint64_t write_shards(const std::vector<std::vector<StoredTensor>>& shards, const std::filesystem::path& folder,
                           const Progress& progress) {
  std::uint64_t total = 0, done = 0, file_bytes = 0;
  for (const auto& shard : shards) {
    for (const StoredTensor& tensor : shard) total += tensor.bytes.size();
  }
  nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_tensors(folder / name, shards[i]);
    for (const StoredTensor& tensor : shards[i]) {
      index["weight_map"][tensor.declaration.name] = name;
      done += tensor.bytes.size();
    }
    file_bytes += std::filesystem::file_size(folder / name);
    if (progress) progress("writing", done, total);
  }
  if (shards.size() > 1) write_atomically(folder / "model.safetensors.index.json", index.dump(1));
  return file_bytes;
}

/// The source's other files, as they are.
void copy_others(const std::filesystem::path& source, const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(source)) {
    if (!entry.is_regular_file() || is_replaced(entry.path())) continue;
    std::error_code error;
    const std::filesystem::path copy = folder / entry.path().filename();
    std::filesystem::copy_file(entry.path(), copy, error);
    if (!error)
      std::filesystem::permissions(copy, std::filesystem::perms::owner_write, std::filesystem::perm_options::add,
                                   error);
    if (error) fail({.file = copy.string()}, "cannot copy this file: {}", error.message());
  }
}

}  // namespace

OutputFolder::OutputFolder(const Checkpoint& source, const QuantizeOptions& options, double bits,
                           const CalibrationTokens& calibration)
    : source_(source), options_(options), bits_(bits), calibration_(calibration) {}

std::uint64_t OutputFolder::write(std::span<const FinishedPart> parts, const std::map<std::string, DenseView>& biases,
                                  const std::filesystem::path& folder, const Progress& progress) const {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  create_folder(folder);
  std::deque<std::vector<Half>> halves;
  const std::vector<Module> modules = collect(source_, parts, biases, halves);
  const std::uint64_t bytes = write_shards(shards_of(modules, options_.shard_bytes), folder, progress);
  auto config = nlohmann::ordered_json::parse(read_text(source_.folder() / "config.json"));
  nlohmann::ordered_json quantization = quantization_config(options_, bits_, calibration_);
  if (config.contains("quantization_config"))
    quantization["original_quantization_config"] = config["quantization_config"];
  config["quantization_config"] = quantization;
  write_atomically(folder / "config.json", config.dump(4) + "\n");
  quantization["tensor_storage"] = tensor_storage(modules, parts);
  write_atomically(folder / "quantization_config.json", quantization.dump(4) + "\n");
  copy_others(source_.folder(), folder);
  return bytes;
}

void OutputFolder::publish(const std::filesystem::path& folder, const std::filesystem::path& destination) {
  std::error_code error;
  if (std::filesystem::exists(destination) && !names_in(destination).empty()) {
    if (!same_files(folder, destination)) {
      fail({.file = destination.string()},
           "the destination is not empty, and what it holds differs from the finished model in {}", folder.string());
    }
    std::filesystem::remove_all(folder, error);
    return;
  }
  std::filesystem::remove(destination, error);  // an empty folder
  std::filesystem::rename(folder, destination, error);
  if (error) {
    fail({.file = destination.string()}, "cannot move the finished model here: {} (it lies in {})", error.message(),
         folder.string());
  }
}

}  // namespace pergola
