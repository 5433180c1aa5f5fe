#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pergola {

/// Deepest nesting of arrays and objects that is read. Real configurations and tokenizers stay below 16.
inline constexpr int kMaxJsonDepth = 64;

/// Largest JSON file that is read into memory as a whole.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{256} << 20;

/// Parses `text` as one JSON document. Throws Error naming `file` when it is not UTF-8, not JSON, or nested deeper than
/// kMaxJsonDepth. The document takes at most about 48 times the memory of its text. Of equal keys in one object the
/// last wins.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// Reads and parses a JSON file of at most kMaxJsonBytes. Throws Error naming it.
nlohmann::json read_json_file(const std::filesystem::path& path);

/// Most members of one object that parse_ordered_json reads: it looks each new key up among those before.
inline constexpr std::size_t kMaxOrderedKeys = 1024;

/// The same as parse_json for a document whose objects keep the order of their members, as prompts need it. Throws
/// Error also for an object of more than kMaxOrderedKeys members.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file);

/// What a parse error of nlohmann's parser says, without its prefix and without the quoted input, e.g. "invalid
/// literal".
std::string json_error_reason(std::string_view what);

}  // namespace pergola
