// Families that write each argument between tags: Qwen3.5 (and Qwen3-Coder), GLM-4.5.
#include <algorithm>

#include "text/chat/reasoning_splitter.h"
#include "text/chat/tool_parsers.h"

namespace pergola {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = skip_space(text, 0);
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// A call whose arguments are written one by one, and become a JSON object.
class TaggedToolParser : public MarkedToolParser {
 protected:
  TaggedToolParser(std::vector<std::string> marks, ToolSchemas schemas)
      : MarkedToolParser(std::move(marks)), schemas_(std::move(schemas)) {}

  void begin(std::string_view name, DeltaList& deltas) {
    name_ = name;
    arguments_ = 0;
    deltas.start_call(name, calls);
  }
  void argument(std::string_view name, std::string_view value, DeltaList& deltas) {
    deltas.add(ChatDelta::Kind::tool_arguments,
               (arguments_++ == 0 ? "{" : ", ") + json_string(name) + ": " + schemas_.argument_json(name_, name, value),
               calls);
  }
  void end(DeltaList& deltas) {
    deltas.add(ChatDelta::Kind::tool_arguments, arguments_ == 0 ? "{}" : "}", calls);
    ++calls;
  }

 private:
  ToolSchemas schemas_;
  std::string name_;
  std::size_t arguments_ = 0;
};

class QwenXmlParser : public TaggedToolParser {
 public:
  explicit QwenXmlParser(ToolSchemas schemas)
      : TaggedToolParser({std::string(kCall), std::string(kFunction)}, std::move(schemas)) {}

 private:
  static constexpr std::string_view kFunction = "<function=";
  static constexpr std::string_view kFunctionEnd = "</function>";
  static constexpr std::string_view kParameter = "<parameter=";
  static constexpr std::string_view kParameterEnd = "</parameter>";
  enum class State { start, body, after };

  bool step_call(bool last, DeltaList& deltas) override {
    switch (state_) {
      case State::start:
        return start(last, deltas);
      case State::body:
        return body(last, deltas);
      case State::after:
        return after(last);
    }
    return false;
  }

  // "<tool_call>\n<function=NAME>", the first of which may be missing.
  bool start(bool last, DeltaList& deltas) {
    const std::size_t mark = held.starts_with(kCall) ? kCall.size() : 0;
    const std::size_t at = skip_space(held, mark);
    const std::string_view rest = std::string_view(held).substr(at);
    if (!rest.starts_with(kFunction)) {
      if (!last && kFunction.starts_with(rest)) return false;
      give_up(mark, deltas);
      return true;
    }
    const std::size_t close = rest.find('>');
    const std::string_view name = rest.substr(kFunction.size(), close - kFunction.size());
    if (close == std::string_view::npos || name.empty() || name.find('\n') != std::string_view::npos) {
      if (!last && name.find('\n') == std::string_view::npos && !(close != std::string_view::npos && name.empty()))
        return false;
      give_up(at + kFunction.size(), deltas);
      return true;
    }
    begin(trimmed(name), deltas);
    held.erase(0, at + close + 1);
    state_ = State::body;
    return true;
  }

  // Between parameters: the next one, or the end of the call.
  bool body(bool last, DeltaList& deltas) {
    const std::size_t at = skip_space(held, 0);
    const std::string_view rest = std::string_view(held).substr(at);
    if (rest.starts_with(kParameter)) return parameter(at, last, deltas);
    for (const std::string_view mark : {kFunctionEnd, kParameter, kCallEnd}) {
      if (!last && !rest.starts_with(mark) && mark.starts_with(rest)) return false;
    }
    if (rest.starts_with(kFunctionEnd)) {
      held.erase(0, at + kFunctionEnd.size());
    } else if (last && rest.starts_with('<')) {
      held.clear();  // half a mark
    }
    state_ = State::after;
    end(deltas);
    return true;
  }

  bool parameter(std::size_t at, bool last, DeltaList& deltas) {
    const std::string_view rest = std::string_view(held).substr(at);
    const std::size_t close = rest.find('>');
    const std::size_t value = close + 1;
    const std::size_t stop = close == std::string_view::npos ? close : value_end(rest, value, last);
    if (stop == std::string_view::npos) {
      if (!last) return false;
      held.clear();  // an argument that was cut off is left out
      return true;
    }
    std::string_view text = rest.substr(value, stop - value);
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    const std::string name(trimmed(rest.substr(kParameter.size(), close - kParameter.size())));
    const std::string content(text);
    held.erase(0, at + stop + (rest.substr(stop).starts_with(kParameterEnd) ? kParameterEnd.size() : 0));
    argument(name, content, deltas);
    return true;
  }

  // Where a value that starts at `from` ends: at a closing tag that is followed by another tag of the call (a value may
  // hold the same text), or at a parameter that begins a line. npos while that is open.
  static std::size_t value_end(std::string_view text, std::size_t from, bool last) {
    const std::size_t next = text.find("\n<parameter=", from);
    for (std::size_t at = text.find(kParameterEnd, from); at != std::string_view::npos;
         at = text.find(kParameterEnd, at + 1)) {
      if (next < at) break;
      const std::string_view behind = text.substr(skip_space(text, at + kParameterEnd.size()));
      for (const std::string_view mark : {kParameter, kFunctionEnd, kCallEnd}) {
        if (behind.starts_with(mark)) return at;
        if (mark.starts_with(behind)) return last ? at : std::string_view::npos;
      }
    }
    return next == std::string_view::npos ? next : next + 1;
  }

  // Behind </function>: the closing </tool_call>, which may be missing.
  bool after(bool last) {
    const std::size_t at = skip_space(held, 0);
    const std::string_view rest = std::string_view(held).substr(at);
    if (!last && !rest.starts_with(kCallEnd) && kCallEnd.starts_with(rest)) return false;
    if (rest.starts_with(kCallEnd)) held.erase(0, at + kCallEnd.size());
    state_ = State::start;
    end_call();
    return true;
  }

  State state_ = State::start;
};

class GlmParser : public TaggedToolParser {
 public:
  explicit GlmParser(ToolSchemas schemas) : TaggedToolParser({std::string(kCall)}, std::move(schemas)) {}

 private:
  static constexpr std::string_view kKey = "<arg_key>";
  static constexpr std::string_view kKeyEnd = "</arg_key>";
  static constexpr std::string_view kValue = "<arg_value>";
  static constexpr std::string_view kValueEnd = "</arg_value>";

  bool step_call(bool last, DeltaList& deltas) override { return named_ ? body(last, deltas) : start(last, deltas); }

  bool start(bool last, DeltaList& deltas) {
    const std::string_view rest = std::string_view(held).substr(kCall.size());
    const std::size_t at = skip_space(rest, 0);
    const std::size_t end_of_name = std::min(rest.find('\n', at), rest.find('<', at));
    if (end_of_name == std::string_view::npos && !last) return false;
    const std::string name(
        trimmed(rest.substr(at, end_of_name == std::string_view::npos ? end_of_name : end_of_name - at)));
    if (name.empty()) {
      give_up(kCall.size(), deltas);
      return true;
    }
    begin(name, deltas);
    held.erase(0, end_of_name == std::string_view::npos ? held.size() : kCall.size() + end_of_name);
    named_ = true;
    return true;
  }

  bool body(bool last, DeltaList& deltas) {
    const std::size_t at = skip_space(held, 0);
    const std::string_view rest = std::string_view(held).substr(at);
    if (rest.starts_with(kKey)) return pair(at, last, deltas);
    for (const std::string_view mark : {kCallEnd, kKey}) {
      if (!last && !rest.starts_with(mark) && mark.starts_with(rest)) return false;
    }
    if (rest.starts_with(kCallEnd)) {
      held.erase(0, at + kCallEnd.size());
    } else if (last && rest.starts_with('<')) {
      held.clear();  // half a mark
    }
    named_ = false;
    end(deltas);
    end_call();
    return true;
  }

  bool pair(std::size_t at, bool last, DeltaList& deltas) {
    const std::string_view rest = std::string_view(held).substr(at);
    const std::size_t key_end = rest.find(kKeyEnd);
    const std::size_t value = key_end == std::string_view::npos ? key_end : rest.find(kValue, key_end);
    const std::size_t value_end = value == std::string_view::npos ? value : rest.find(kValueEnd, value);
    if (value_end == std::string_view::npos) {
      if (!last) return false;
      held.clear();  // an argument that was cut off is left out
      return true;
    }
    const std::string key(trimmed(rest.substr(kKey.size(), key_end - kKey.size())));
    const std::string text(rest.substr(value + kValue.size(), value_end - value - kValue.size()));
    held.erase(0, at + value_end + kValueEnd.size());
    argument(key, text, deltas);
    return true;
  }

  bool named_ = false;
};

}  // namespace

std::unique_ptr<ToolParser> make_qwen_xml_parser(ToolSchemas schemas) {
  return std::make_unique<QwenXmlParser>(std::move(schemas));
}
std::unique_ptr<ToolParser> make_glm_parser(ToolSchemas schemas) {
  return std::make_unique<GlmParser>(std::move(schemas));
}

}  // namespace pergola
