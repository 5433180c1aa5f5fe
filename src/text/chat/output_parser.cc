#include "text/chat/output_parser.h"

#include "text/chat/reasoning_splitter.h"
#include "text/chat/tool_parsers.h"

namespace pergola {
namespace {

/// Reasoning first, then everything else to the parser of the family.
class ChatOutputParser : public OutputParser {
 public:
  ChatOutputParser(ReasoningSplitter splitter, std::unique_ptr<ToolParser> tools)
      : splitter_(std::move(splitter)), tools_(std::move(tools)) {}

  std::vector<ChatDelta> push(std::string_view text) override {
    splitter_.push(text);
    return deltas();
  }

  std::vector<ChatDelta> finish() override {
    splitter_.finish();
    tools_finish_ = true;
    return deltas();
  }

 private:
  std::vector<ChatDelta> deltas() {
    DeltaList list;
    list.add(ChatDelta::Kind::reasoning, splitter_.take_reasoning());
    tools_->push(splitter_.take_content(), list);
    if (tools_finish_) tools_->finish(list);
    return list.take();
  }

  ReasoningSplitter splitter_;
  std::unique_ptr<ToolParser> tools_;
  bool tools_finish_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_output_parser(const ChatFormat& format, const OutputParserOptions& options) {
  ReasoningSplitter splitter;
  const bool with_tools = options.tools.is_array() && !options.tools.empty();
  if (options.split_reasoning && format.reasoning) {
    // A call ends the reasoning of a model that forgot to close it.
    const bool call_ends = with_tools && (format.tools == ToolFormat::hermes || format.tools == ToolFormat::qwen_xml ||
                                          format.tools == ToolFormat::glm);
    splitter = ReasoningSplitter(*format.reasoning, starts_in_reasoning(options.prompt, *format.reasoning),
                                 call_ends ? "<tool_call>" : "");
  }
  return std::make_unique<ChatOutputParser>(
      std::move(splitter), make_tool_parser(with_tools ? format.tools : ToolFormat::none, ToolSchemas(options.tools)));
}

void ChatAnswer::add(const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::reasoning:
      reasoning += delta.text;
      break;
    case ChatDelta::Kind::content:
      content += delta.text;
      break;
    case ChatDelta::Kind::tool_call:
      tool_calls.push_back({delta.call_id, delta.text, ""});
      break;
    case ChatDelta::Kind::tool_arguments:
      tool_calls.at(delta.call).arguments += delta.text;
      break;
  }
}

}  // namespace pergola
