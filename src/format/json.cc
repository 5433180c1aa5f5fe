#include "format/json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"

namespace pergola {
namespace {

/// Refuses deep nesting before the parser builds anything: a document is destroyed recursively.
void check_depth(std::string_view text, const std::string& file) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        fail({.file = file, .offset = at}, "JSON nested deeper than {} levels", kMaxJsonDepth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

std::string json_error_reason(std::string_view what) {
  if (const auto dash = what.find(" - "); dash != std::string_view::npos) {
    what.remove_prefix(dash + 3);
  } else if (const auto bracket = what.find("] "); bracket != std::string_view::npos) {
    what.remove_prefix(bracket + 2);
  }
  return std::string(what.substr(0, what.find(';')));
}

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  check_depth(text, file);
  try {
    return nlohmann::json::parse(text.data(), text.data() + text.size());
  } catch (const nlohmann::json::parse_error& error) {
    fail({.file = file, .offset = error.byte}, "not valid JSON: {}", json_error_reason(error.what()));
  } catch (const nlohmann::json::exception& error) {  // a number that no double holds
    fail({.file = file}, "not valid JSON: {}", json_error_reason(error.what()));
  }
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.empty()) fail({.file = path.string()}, "the file is empty");
  if (bytes.size() > kMaxJsonBytes)
    fail({.file = path.string()}, "{} bytes are too many for a JSON file", bytes.size());
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace pergola
