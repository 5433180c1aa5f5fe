#include "quantize/work_folder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "quantize/files.h"
#include "quantize/stored_tensors.h"

namespace pergola {

namespace {

std::string hash_of(const nlohmann::json& facts) {
  const std::string text = facts.dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string hash_of(const MappedFile& data, const nlohmann::json& linears) {
  const XXH128_hash_t hash = XXH3_128bits(data.bytes().data(), data.bytes().size());
  return fmt::format("{:016x}{:016x}{}", hash.high64, hash.low64, hash_of(linears));
}

nlohmann::json to_json(const std::string& key, const QuantizedLinear& linear) {
  return {{"key", key},
          {"in_features", linear.in_features},
          {"out_features", linear.out_features},
          {"bits", linear.bits},
          {"codebook", static_cast<int>(linear.codebook)},
          {"scale", linear.scale},
          {"proxy_error", linear.proxy_error},
          {"weight_error", linear.weight_error}};
}

LinearFacts from_json(const nlohmann::json& facts) {
  return {facts.at("key"),
          facts.at("in_features"),
          facts.at("out_features"),
          facts.at("bits"),
          static_cast<Codebook>(facts.at("codebook").get<int>()),
          facts.at("scale"),
          facts.at("proxy_error"),
          facts.at("weight_error")};
}

}  // namespace

FinishedPart::FinishedPart(const std::filesystem::path& file, std::vector<LinearFacts> linears)
    : tensors_(std::vector{file}), linears_(std::move(linears)) {}

TrellisView FinishedPart::view(std::size_t index) const {
  const LinearFacts& facts = linears_[index];
  const auto bytes = [&](const char* suffix) { return tensors_.find(facts.key + suffix)->bytes; };
  return {facts.in_features, facts.out_features, facts.bits,   facts.codebook,
          bytes(".trellis"), bytes(".suh"),      bytes(".svh")};
}

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
  create_folder(folder_);
  std::set<std::string> names = names_in(folder_);
  names.erase("job.json.part");  // of a run that was interrupted before it began
  if (!names.empty())
    fail({.file = folder_.string()}, "the work folder is not empty and is not one of ours; name another with --work");
  write_atomically(job_file, identity);
}

std::optional<FinishedPart> WorkFolder::load(const std::string& part) const {
  const std::filesystem::path facts_file = folder_ / (part + ".json"), data_file = folder_ / (part + ".safetensors");
  if (!std::filesystem::exists(facts_file) || !std::filesystem::exists(data_file)) return std::nullopt;
  const nlohmann::json stored = nlohmann::json::parse(read_text(facts_file), nullptr, false);
  if (!stored.is_object() || !stored.contains("hash") || !stored.contains("linears")) return std::nullopt;
  if (stored["hash"] != hash_of(MappedFile(data_file), stored["linears"])) return std::nullopt;
  std::vector<LinearFacts> linears;
  for (const nlohmann::json& facts : stored["linears"]) linears.push_back(from_json(facts));
  return FinishedPart(data_file, std::move(linears));
}

FinishedPart WorkFolder::save(const std::string& part, const std::vector<NamedLinear>& linears) const {
  std::vector<StoredTensor> tensors;
  nlohmann::json facts = nlohmann::json::array();
  std::vector<LinearFacts> kept;
  for (const NamedLinear& named : linears) {
    for (StoredTensor& tensor : stored_tensors(named.key, named.linear)) tensors.push_back(std::move(tensor));
    facts.push_back(to_json(named.key, named.linear));
    kept.push_back(from_json(facts.back()));
  }
  const std::filesystem::path data_file = folder_ / (part + ".safetensors");
  write_tensors(data_file, tensors);
  const nlohmann::json stored{{"hash", hash_of(MappedFile(data_file), facts)}, {"linears", facts}};
  write_atomically(folder_ / (part + ".json"), stored.dump(1));
  return {data_file, std::move(kept)};
}

nlohmann::json WorkFolder::load_measurement(const std::string& name) const {
  const std::filesystem::path file = folder_ / (name + ".json");
  if (!std::filesystem::exists(file)) return nullptr;
  const nlohmann::json stored = nlohmann::json::parse(read_text(file), nullptr, false);
  if (!stored.is_object() || !stored.contains("hash") || !stored.contains("values")) return nullptr;
  return stored["hash"] == hash_of(stored["values"]) ? stored["values"] : nlohmann::json();
}

void WorkFolder::save_measurement(const std::string& name, const nlohmann::json& values) const {
  write_atomically(folder_ / (name + ".json"), nlohmann::json{{"hash", hash_of(values)}, {"values", values}}.dump(1));
}

}  // namespace pergola
