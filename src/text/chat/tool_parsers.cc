#include "text/chat/tool_parsers.h"

#include <algorithm>
#include <utility>

#include "text/chat/reasoning_splitter.h"

namespace pergola {
namespace {

/// Without tools all is content.
class PlainParser : public ToolParser {
 public:
  void push(std::string_view text, DeltaList& deltas) override { deltas.add(ChatDelta::Kind::content, text); }
  void finish(DeltaList&) override {}
};

}  // namespace

void DeltaList::add(ChatDelta::Kind kind, std::string_view text, std::size_t call) {
  if (text.empty()) return;
  if (!deltas_.empty() && deltas_.back().kind == kind && deltas_.back().call == call) {
    deltas_.back().text += text;
  } else {
    deltas_.push_back({kind, std::string(text), call, {}});
  }
}

void DeltaList::start_call(std::string_view name, std::size_t call, std::string_view id) {
  deltas_.push_back({ChatDelta::Kind::tool_call, std::string(name), call, std::string(id)});
}

void MarkedToolParser::push(std::string_view text, DeltaList& deltas) {
  held += text;
  while (step(false, deltas)) {
  }
}

void MarkedToolParser::finish(DeltaList& deltas) {
  while (step(true, deltas)) {
  }
}

void MarkedToolParser::give_up(std::size_t size, DeltaList& deltas) {
  deltas.add(ChatDelta::Kind::content, std::string_view(held).substr(0, size));
  held.erase(0, size);
  in_call_ = false;
}

bool MarkedToolParser::step(bool last, DeltaList& deltas) {
  return in_call_ ? step_call(last, deltas) : step_content(last, deltas);
}

// White space before a call belongs to neither, so it waits for what follows.
bool MarkedToolParser::step_content(bool last, DeltaList& deltas) {
  const std::string_view text = held;
  std::size_t mark = std::string_view::npos;
  std::size_t partial = 0;
  for (const std::string& candidate : marks_) {
    mark = std::min(mark, text.find(candidate));
    partial = std::max(partial, partial_mark(text, candidate));
  }
  const bool found = mark != std::string_view::npos;
  std::size_t end = found ? mark : text.size() - (last ? 0 : partial);
  const std::size_t word_end = text.substr(0, end).find_last_not_of(" \t\r\n") + 1;  // 0 when there is none
  std::size_t shown = found || !last ? word_end : end;
  if (last && !found && word_end == 0 && calls > 0) shown = 0;  // line ends behind the last call
  deltas.add(ChatDelta::Kind::content, text.substr(0, shown));
  held.erase(0, found ? mark : shown);
  in_call_ = found;
  if (last && !found) held.clear();
  return found;
}

std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format, ToolSchemas schemas) {
  switch (format) {
    case ToolFormat::none:
      break;
    case ToolFormat::hermes:
      return make_hermes_parser();
    case ToolFormat::qwen_xml:
      return make_qwen_xml_parser(std::move(schemas));
    case ToolFormat::llama:
      return make_llama_parser(std::move(schemas));
    case ToolFormat::mistral:
      return make_mistral_parser();
    case ToolFormat::glm:
      return make_glm_parser(std::move(schemas));
  }
  return std::make_unique<PlainParser>();
}

}  // namespace pergola
