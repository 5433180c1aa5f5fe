#include "format/generation_config.h"

#include <algorithm>

namespace pergola {
namespace {

constexpr std::int64_t kMaxId = INT32_MAX;
constexpr double kMaxTemperature = 100;
constexpr double kMaxPenalty = 100;

std::optional<double> optional_float(const Config& config, std::string_view field, double min, double max) {
  if (!config.has(field)) return std::nullopt;
  return config.require_float(field, min, max);
}

/// A token id; some files write -1 for "none".
std::optional<std::int32_t> optional_id(const Config& config, std::string_view field) {
  const std::int64_t id = config.get_int(field, -1, -1, kMaxId);
  if (id < 0) return std::nullopt;
  return static_cast<std::int32_t>(id);
}

void add_ids(std::vector<std::int32_t>& ids, const Config& config, std::string_view field) {
  for (const std::int64_t id : config.get_ints(field, 0, kMaxId)) ids.push_back(static_cast<std::int32_t>(id));
}

}  // namespace

GenerationConfig read_generation_config(const Config* generation, const Config& model) {
  GenerationConfig result;
  if (generation != nullptr) {
    const Config& config = *generation;
    if (config.has("do_sample")) result.do_sample = config.get_bool("do_sample", false);
    result.temperature = optional_float(config, "temperature", 0, kMaxTemperature);
    if (config.has("top_k")) result.top_k = config.require_int("top_k", 0, kMaxId);
    result.top_p = optional_float(config, "top_p", 0, 1);
    result.min_p = optional_float(config, "min_p", 0, 1);
    result.repetition_penalty = optional_float(config, "repetition_penalty", 1e-3, kMaxPenalty);
    result.presence_penalty = optional_float(config, "presence_penalty", -kMaxPenalty, kMaxPenalty);
    result.frequency_penalty = optional_float(config, "frequency_penalty", -kMaxPenalty, kMaxPenalty);
    add_ids(result.eos_token_ids, config, "eos_token_id");
    result.bos_token_id = optional_id(config, "bos_token_id");
    result.pad_token_id = optional_id(config, "pad_token_id");
  }
  const Config text = model.text();
  add_ids(result.eos_token_ids, text, "eos_token_id");
  add_ids(result.eos_token_ids, model, "eos_token_id");
  std::sort(result.eos_token_ids.begin(), result.eos_token_ids.end());
  result.eos_token_ids.erase(std::unique(result.eos_token_ids.begin(), result.eos_token_ids.end()),
                             result.eos_token_ids.end());
  if (!result.bos_token_id) result.bos_token_id = optional_id(text, "bos_token_id");
  if (!result.pad_token_id) result.pad_token_id = optional_id(text, "pad_token_id");
  return result;
}

GenerationConfig load_generation_config(const std::filesystem::path& folder, const Config& model) {
  const auto path = folder / "generation_config.json";
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found)
    return read_generation_config(nullptr, model);
  const Config config = Config::load(path);
  return read_generation_config(&config, model);
}

}  // namespace pergola
