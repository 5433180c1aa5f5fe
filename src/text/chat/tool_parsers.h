#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/output_parser.h"
#include "text/chat/tool_schemas.h"

namespace pergola {

/// Deltas in the making: neighbours of one kind become one, empty ones are left out.
class DeltaList {
 public:
  void add(ChatDelta::Kind kind, std::string_view text, std::size_t call = 0);
  void start_call(std::string_view name, std::size_t call, std::string_view id = {});
  std::vector<ChatDelta> take() { return std::move(deltas_); }

 private:
  std::vector<ChatDelta> deltas_;
};

/// Finds one family's tool calls in the content of an answer.
class ToolParser {
 public:
  virtual ~ToolParser() = default;
  virtual void push(std::string_view text, DeltaList& deltas) = 0;
  virtual void finish(DeltaList& deltas) = 0;
};

std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format, ToolSchemas schemas);

// One maker a family; see ToolFormat for the formats.
std::unique_ptr<ToolParser> make_hermes_parser();
std::unique_ptr<ToolParser> make_llama_parser(ToolSchemas schemas);
std::unique_ptr<ToolParser> make_mistral_parser();
std::unique_ptr<ToolParser> make_qwen_xml_parser(ToolSchemas schemas);
std::unique_ptr<ToolParser> make_glm_parser(ToolSchemas schemas);

/// What the parsers share: text that waits, and the way from content into a call. A family's class says how a call goes
/// on once its mark was found.
class MarkedToolParser : public ToolParser {
 public:
  explicit MarkedToolParser(std::vector<std::string> marks) : marks_(std::move(marks)) {}

  void push(std::string_view text, DeltaList& deltas) final;
  void finish(DeltaList& deltas) final;

 protected:
  /// Takes what it can of `held` while in a call, which begins with its mark; false when more text is needed. `last`:
  /// no more comes, so a call must end here.
  virtual bool step_call(bool last, DeltaList& deltas) = 0;

  /// The call is over; what is held is content again.
  void end_call() { in_call_ = false; }
  /// What began with a mark is no call: the first `size` held bytes are content.
  void give_up(std::size_t size, DeltaList& deltas);

  std::string held;
  std::size_t calls = 0;  ///< begun so far

 private:
  bool step(bool last, DeltaList& deltas);
  bool step_content(bool last, DeltaList& deltas);

  std::vector<std::string> marks_;
  bool in_call_ = false;
};

}  // namespace pergola
