#include "quantize/work_folder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/checkpoint.h"
#include "quantize/files.h"
#include "quantize/stored_tensors.h"

namespace pergola {

namespace {

std::string hash_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  const XXH128_hash_t hash = XXH3_128bits(file.bytes().data(), file.bytes().size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

QuantizedLinear read_linear(const TensorTable& tensors, const nlohmann::json& facts) {
  const std::string key = facts.at("key");
  QuantizedLinear linear;
  linear.in_features = facts.at("in_features");
  linear.out_features = facts.at("out_features");
  linear.bits = facts.at("bits");
  linear.codebook = static_cast<Codebook>(facts.at("codebook").get<int>());
  linear.scale = facts.at("scale");
  linear.proxy_error = facts.at("proxy_error");
  linear.weight_error = facts.at("weight_error");
  const auto bytes = [&](const char* name) { return tensors.find(key + name)->bytes; };
  const auto halves = [&](const char* name) {
    const std::span<const std::byte> stored = bytes(name);
    std::vector<Half> values(stored.size() / sizeof(Half));
    std::copy(stored.begin(), stored.end(), std::as_writable_bytes(std::span(values)).begin());
    return values;
  };
  linear.trellis.assign(bytes(".trellis").begin(), bytes(".trellis").end());
  linear.suh = halves(".suh");
  linear.svh = halves(".svh");
  return linear;
}

nlohmann::json facts_of(const NamedLinear& named) {
  const QuantizedLinear& q = named.linear;
  return {{"key", named.key},
          {"in_features", q.in_features},
          {"out_features", q.out_features},
          {"bits", q.bits},
          {"codebook", static_cast<int>(q.codebook)},
          {"scale", q.scale},
          {"proxy_error", q.proxy_error},
          {"weight_error", q.weight_error}};
}

}  // namespace

WorkFolder::WorkFolder(std::filesystem::path folder, const nlohmann::json& job, bool resume)
    : folder_(std::move(folder)) {
  const std::filesystem::path job_file = folder_ / "job.json";
  const std::string identity = job.dump(1);
  if (std::filesystem::exists(job_file)) {
    if (!resume) {
      fail({.file = folder_.string()},
           "this work folder holds an unfinished conversion; continue it with --resume or delete it");
    }
    if (read_text(job_file) != identity) {
      fail({.file = job_file.string()},
           "this work folder belongs to another conversion (source, options or calibration differ)");
    }
    return;
  }
  if (std::filesystem::exists(folder_) && !std::filesystem::is_empty(folder_)) {
    fail({.file = folder_.string()}, "the work folder is not empty and is not one of ours; name another with --work");
  }
  create_folder(folder_);
  write_atomically(job_file, identity);
}

std::optional<std::vector<NamedLinear>> WorkFolder::load(const std::string& part) const {
  const std::filesystem::path facts_file = folder_ / (part + ".json"), data_file = folder_ / (part + ".safetensors");
  if (!std::filesystem::exists(facts_file) || !std::filesystem::exists(data_file)) return std::nullopt;
  const nlohmann::json facts = nlohmann::json::parse(read_text(facts_file), nullptr, false);
  if (facts.is_discarded() || !facts.contains("hash") || facts["hash"] != hash_of(data_file)) return std::nullopt;
  const TensorTable tensors(std::vector{data_file});
  std::vector<NamedLinear> linears;
  for (const nlohmann::json& entry : facts.at("linears"))
    linears.push_back({entry.at("key"), read_linear(tensors, entry)});
  return linears;
}

void WorkFolder::save(const std::string& part, const std::vector<NamedLinear>& linears) const {
  std::vector<StoredTensor> tensors;
  nlohmann::json facts{{"linears", nlohmann::json::array()}};
  for (const NamedLinear& named : linears) {
    for (StoredTensor& tensor : stored_tensors(named.key, named.linear)) tensors.push_back(std::move(tensor));
    facts["linears"].push_back(facts_of(named));
  }
  const std::filesystem::path data_file = folder_ / (part + ".safetensors");
  write_tensors(data_file, tensors);
  facts["hash"] = hash_of(data_file);
  write_atomically(folder_ / (part + ".json"), facts.dump(1));
}

}  // namespace pergola
