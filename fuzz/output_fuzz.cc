// Hostile output of a model for every parser. The first byte picks the format, the second how the text is cut. However
// it is cut the answer is the same, and arguments are JSON objects.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat/output_parser.h"
#include "text/utf8.h"

namespace {

using namespace pergola;

ChatAnswer parse(const ChatFormat& format, std::string_view text, std::size_t piece) {
  static const nlohmann::ordered_json tools = nlohmann::ordered_json::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "object"}}}}}])");
  const auto parser = make_output_parser(format, {.prompt = "<think>\n", .tools = tools});
  ChatAnswer answer;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    for (const ChatDelta& delta : parser->push(text.substr(at, piece))) answer.add(delta);
  }
  for (const ChatDelta& delta : parser->finish()) answer.add(delta);
  for (const auto& call : answer.tool_calls) {
    if (!nlohmann::json::parse(call.arguments, nullptr, false).is_object()) std::abort();
  }
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (!is_valid_utf8(text)) return 0;  // the stream decoder gives nothing else
  constexpr std::array formats = {ToolFormat::hermes, ToolFormat::qwen_xml, ToolFormat::llama, ToolFormat::mistral,
                                  ToolFormat::glm};
  ChatFormat format{.tools = formats[data[0] % formats.size()]};
  if (data[0] >= 128) format.reasoning = ReasoningMarks{"<think>", "</think>"};
  const ChatAnswer whole = parse(format, text, std::max<std::size_t>(text.size(), 1));
  const ChatAnswer pieces = parse(format, text, 1 + data[1] % 16);
  if (whole.content != pieces.content || whole.reasoning != pieces.reasoning) std::abort();
  if (whole.tool_calls.size() != pieces.tool_calls.size()) std::abort();
  for (std::size_t i = 0; i < whole.tool_calls.size(); ++i) {
    if (whole.tool_calls[i].arguments != pieces.tool_calls[i].arguments) std::abort();
  }
  return 0;
}
