#include "format/json.h"

#include <nlohmann/json.hpp>
#include <vector>

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

template <typename Json>
Json parse(std::string_view text, const std::string& file, const typename Json::parser_callback_t& callback) {
  check_depth(text, file);
  try {
    return Json::parse(text.data(), text.data() + text.size(), callback);
  } catch (const typename Json::parse_error& error) {
    fail({.file = file, .offset = error.byte}, "not valid JSON: {}", json_error_reason(error.what()));
  } catch (const typename Json::exception& error) {  // a number that no double holds
    fail({.file = file}, "not valid JSON: {}", json_error_reason(error.what()));
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
  return parse<nlohmann::json>(text, file, nullptr);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file) {
  std::vector<std::size_t> keys;  // of the objects that are open
  using Event = nlohmann::ordered_json::parse_event_t;
  return parse<nlohmann::ordered_json>(text, file, [&](int, Event event, const nlohmann::ordered_json&) {
    if (event == Event::object_start) keys.push_back(0);
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && ++keys.back() > kMaxOrderedKeys) {
      fail({.file = file}, "a JSON object has more than {} members", kMaxOrderedKeys);
    }
    return true;
  });
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
