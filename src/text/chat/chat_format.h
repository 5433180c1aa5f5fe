#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pergola {

class Tokenizer;

/// How a family of models writes the calls of tools.
enum class ToolFormat : std::uint8_t {
  none,      ///< the template knows no tools
  hermes,    ///< <tool_call>\n{"name": N, "arguments": {...}}\n</tool_call> (Qwen3, Hermes)
  qwen_xml,  ///< <tool_call>\n<function=N>\n<parameter=P>\nvalue\n</parameter>\n</function>\n</tool_call> (Qwen3.5)
  llama,     ///< {"name": N, "parameters": {...}}, perhaps behind <|python_tag|> (Llama 3)
  mistral,   ///< [TOOL_CALLS][{"name": N, "arguments": {...}}], or [TOOL_CALLS]N[ARGS]{...}
  glm,       ///< <tool_call>N\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call> (GLM-4.5)
};

/// The name of a format as documentation and messages spell it, e.g. "qwen_xml".
std::string_view name_of(ToolFormat format);

/// The marks around a model's reasoning.
struct ReasoningMarks {
  std::string open;   ///< "<think>"
  std::string close;  ///< "</think>"

  bool operator==(const ReasoningMarks&) const = default;
};

/// What a chat template says about the text that its model writes.
struct ChatFormat {
  ToolFormat tools = ToolFormat::none;
  std::optional<ReasoningMarks> reasoning;
  /// Some of the marks are special tokens: output must be decoded with special tokens kept (skip_special false).
  bool marks_are_special = false;
};

/// Reads the format off the marks that a template's source and its tokenizer have.
ChatFormat detect_chat_format(std::string_view template_source, const Tokenizer& tokenizer);

/// Whether text written behind `prompt` starts inside the reasoning: the prompt's tail opens a block that it does not
/// close.
bool starts_in_reasoning(std::string_view prompt, const ReasoningMarks& marks);

}  // namespace pergola
