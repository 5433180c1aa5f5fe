#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "format/json.h"

namespace pergola {

/// Files that tools/make_tokenizer_fixtures.py wrote: what Hugging Face's tokenizers library made of them.
inline std::filesystem::path tokenizer_fixtures() {
  return std::filesystem::path(PERGOLA_SOURCE_DIR) / "tests" / "data" / "tokenizers";
}

inline nlohmann::json read_fixture(const std::string& name) {
  return read_json_file(tokenizer_fixtures() / name);
}

}  // namespace pergola
