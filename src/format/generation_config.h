#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "format/config.h"

namespace pergola {

/// What generation_config.json says about sampling and about where text ends. Members that the file leaves out are
/// empty.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  ///< 0 = no limit
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::int32_t> eos_token_ids;  ///< of this file and of config.json together, sorted; may be empty
  std::optional<std::int32_t> bos_token_id;
  std::optional<std::int32_t> pad_token_id;
};

/// Reads generation_config.json of a model folder; without one only config.json's token ids are taken. The end of text
/// is what any of the files calls so: chat models name the end of a turn in one and the end of a document in the other.
/// Throws Error naming the file and the member for a value of the wrong type or out of range.
GenerationConfig load_generation_config(const std::filesystem::path& folder, const Config& model);

/// The same from parsed files; `generation` may be null.
GenerationConfig read_generation_config(const Config* generation, const Config& model);

}  // namespace pergola
