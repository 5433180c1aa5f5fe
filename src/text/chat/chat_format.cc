#include "text/chat/chat_format.h"

#include <array>

#include "text/tokenizer.h"

namespace pergola {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The most telling marks first: a template that describes calls in XML also names <tool_call>.
ToolFormat tool_format(std::string_view source) {
  if (has(source, "<function=")) return ToolFormat::qwen_xml;
  if (has(source, "<arg_key>")) return ToolFormat::glm;
  if (has(source, "[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has(source, "<tool_call>")) return ToolFormat::hermes;
  if (has(source, "<|python_tag|>") || has(source, "\"parameters\":")) return ToolFormat::llama;
  return ToolFormat::none;
}

std::optional<ReasoningMarks> reasoning_marks(std::string_view source) {
  if (has(source, "<think>") || has(source, "</think>")) return ReasoningMarks{"<think>", "</think>"};
  if (has(source, "[THINK]")) return ReasoningMarks{"[THINK]", "[/THINK]"};
  return std::nullopt;
}

}  // namespace

std::string_view name_of(ToolFormat format) {
  static constexpr std::array<std::string_view, 6> names = {"none", "hermes", "qwen_xml", "llama", "mistral", "glm"};
  return names[static_cast<std::size_t>(format)];
}

ChatFormat detect_chat_format(std::string_view template_source, const Tokenizer& tokenizer) {
  ChatFormat format{.tools = tool_format(template_source), .reasoning = reasoning_marks(template_source)};
  for (const std::string_view mark : {"<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>",
                                      "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<arg_key>", "<arg_value>"}) {
    const auto id = tokenizer.id_of(mark);
    format.marks_are_special = format.marks_are_special || (id && tokenizer.is_special(*id));
  }
  return format;
}

bool starts_in_reasoning(std::string_view prompt, const ReasoningMarks& marks) {
  const std::size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(marks.open);
}

}  // namespace pergola
