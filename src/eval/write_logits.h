#pragma once

#include <filesystem>

#include "base/progress.h"
#include "engine/engine.h"
#include "eval/token_file.h"

namespace pergola {

/// Runs every window of `tokens` from a fresh state and writes ids and logits to `to` (format/logits_file.h). Nothing
/// new is left there when it fails.
void write_logits(Engine& engine, const TokenFile& tokens, const std::filesystem::path& to, const Progress& progress);

}  // namespace pergola
