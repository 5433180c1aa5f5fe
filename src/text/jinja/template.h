#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace pergola::jinja {

/// What one rendering may use.
struct Limits {
  std::int64_t steps = 16'000'000;  ///< of Budget: some seconds and some hundred megabytes
  std::size_t output_bytes = std::size_t{32} << 20;
  int depth = 400;  ///< of nested evaluation, which macros can make endless
};

/// A program in the subset of Jinja2 that chat templates use, with Jinja2's results byte for byte: whitespace control,
/// if, for (with filter, else, break and continue), set (of names, namespaces and blocks), macro, call, filter, with,
/// raw, generation; namespace(), range(), dict(), raise_exception(), strftime_now(); the filters and tests of
/// filters.cc and tests.cc; methods of strings, dicts and lists. Everything else is refused when the template is read.
/// The environment is that of Hugging Face's transformers: trim_blocks, lstrip_blocks, no autoescape, and `tojson` that
/// writes like json.dumps with ensure_ascii=False. Immutable; safe to use from several threads.
class Template {
 public:
  /// Compiles `source`; `name` stands for the file in errors, which also give the line.
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// The text for `variables`, an object. `now` is what strftime_now formats (in local time; the clock, if not given).
  /// Throws Error naming template and line for what the template raises or does wrong, and for a broken limit.
  std::string render(const nlohmann::ordered_json& variables, const Limits& limits = {},
                     std::optional<std::chrono::system_clock::time_point> now = std::nullopt) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace pergola::jinja
