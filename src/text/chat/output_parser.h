#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_format.h"

namespace pergola {

/// A piece of an answer that can be sent on.
struct ChatDelta {
  enum class Kind : std::uint8_t {
    reasoning,       ///< `text` continues the reasoning
    content,         ///< `text` continues the content
    tool_call,       ///< a call begins: `text` is the tool's name, `call` its number
    tool_arguments,  ///< `text` continues the arguments of `call`, a JSON object as text
  };
  Kind kind;
  std::string text;
  std::size_t call = 0;  ///< number of the tool call, from 0
  std::string call_id;   ///< tool_call only: the id that the model wrote, empty if it wrote none

  bool operator==(const ChatDelta&) const = default;
};

/// Takes a model's output apart while it is written: reasoning, content, tool calls. Never gives out a part of a mark,
/// and the deltas put together do not depend on how the text was cut.
class OutputParser {
 public:
  virtual ~OutputParser() = default;

  /// Takes the next text, decoded as ChatFormat::marks_are_special says and without the stop token.
  virtual std::vector<ChatDelta> push(std::string_view text) = 0;
  /// The end of the output: what was held back. A call that was cut off is given as far as it goes, its arguments
  /// closed to valid JSON.
  virtual std::vector<ChatDelta> finish() = 0;
};

/// What a parser has to know beside the format.
struct OutputParserOptions {
  /// The rendered prompt: its tail decides whether the output starts inside the reasoning.
  std::string_view prompt;
  /// OpenAI's list of tools, or null: types of arguments. Without tools nothing is taken for a call.
  nlohmann::ordered_json tools;
  /// False: reasoning marks are text.
  bool split_reasoning = true;
};

std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, const OutputParserOptions& options);

/// An answer put together again, for replies that are sent as a whole.
struct ChatAnswer {
  struct ToolCall {
    std::string id;  ///< as the model wrote it, or empty
    std::string name;
    std::string arguments;
  };
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;

  void add(const ChatDelta& delta);
};

}  // namespace pergola
