// Families that write a call as one JSON object: Hermes and Qwen3, Llama 3, Mistral.
#include <optional>

#include "text/chat/json_call.h"
#include "text/chat/reasoning_splitter.h"
#include "text/chat/tool_parsers.h"

namespace pergola {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

class HermesParser : public MarkedToolParser {
 public:
  HermesParser() : MarkedToolParser({std::string(kOpen)}) {}

 private:
  static constexpr std::string_view kOpen = "<tool_call>";
  static constexpr std::string_view kClose = "</tool_call>";

  bool step_call(bool last, DeltaList& deltas) override {
    if (!call_) {
      call_.emplace(calls);
      read_ = kOpen.size();
    }
    read_ += call_->push(std::string_view(held).substr(read_), deltas);
    if (call_->status() == JsonCall::Status::more && !last) return false;
    if (!call_->started()) {
      call_.reset();
      give_up(kOpen.size(), deltas);
      return true;
    }
    if (call_->status() != JsonCall::Status::done) call_->close(deltas);
    return close(last);
  }

  // Behind the object: everything to the closing mark, or nothing when another text follows.
  bool close(bool last) {
    const std::string_view rest = std::string_view(held).substr(read_);
    const std::size_t text = skip_space(rest, 0);
    const std::string_view tail = rest.substr(text);
    if (!last && !tail.starts_with(kClose) && kClose.starts_with(tail)) return false;
    held.erase(0, tail.starts_with(kClose) ? read_ + text + kClose.size() : read_);
    ++calls;
    call_.reset();
    end_call();
    return true;
  }

  std::optional<JsonCall> call_;
  std::size_t read_ = 0;
};

/// A whole answer of calls, or none: a JSON object is only a call when it names a tool.
class LlamaParser : public ToolParser {
 public:
  explicit LlamaParser(ToolSchemas schemas) : schemas_(std::move(schemas)) {}

  void push(std::string_view text, DeltaList& deltas) override {
    held_ += text;
    while (step(false, deltas)) {
    }
  }
  void finish(DeltaList& deltas) override {
    while (step(true, deltas)) {
    }
  }

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";
  enum class State { start, call, content };

  bool step(bool last, DeltaList& deltas) {
    switch (state_) {
      case State::start:
        return start(last);
      case State::call:
        return call(last, deltas);
      case State::content:
        deltas.add(ChatDelta::Kind::content, held_);
        held_.clear();
        return false;
    }
    return false;
  }

  bool start(bool last) {
    std::size_t at = skip_space(held_, 0);
    std::string_view rest = std::string_view(held_).substr(at);
    if (rest.starts_with(kTag)) {
      at = skip_space(held_, at + kTag.size());
      rest = std::string_view(held_).substr(at);
    }
    if (calls_ > 0 && (rest.starts_with(';') || rest.starts_with(','))) {
      held_.erase(0, at + 1);
      return true;
    }
    if (!last && (rest.empty() || kTag.starts_with(rest))) return false;
    if (rest.starts_with('{')) {
      read_ = at;
      call_.emplace(calls_, [this](std::string_view name) { return schemas_.has_tool(name); });
      state_ = State::call;
    } else {
      if (calls_ > 0 && rest.empty()) held_.clear();
      state_ = State::content;
    }
    return true;
  }

  bool call(bool last, DeltaList& deltas) {
    read_ += call_->push(std::string_view(held_).substr(read_), deltas);
    if (call_->status() == JsonCall::Status::more && !last) return false;
    if (!call_->started()) {
      state_ = State::content;
      return true;
    }
    if (call_->status() != JsonCall::Status::done) call_->close(deltas);
    held_.erase(0, read_);
    ++calls_;
    state_ = State::start;
    return true;
  }

  ToolSchemas schemas_;
  State state_ = State::start;
  std::string held_;
  std::optional<JsonCall> call_;
  std::size_t read_ = 0;
  std::size_t calls_ = 0;
};

class MistralParser : public MarkedToolParser {
 public:
  MistralParser() : MarkedToolParser({std::string(kOpen)}) {}

 private:
  static constexpr std::string_view kOpen = "[TOOL_CALLS]";
  static constexpr std::string_view kArguments = "[ARGS]";
  static constexpr std::string_view kId = "[CALL_ID]";
  enum class State { start, list, object, named };

  bool step_call(bool last, DeltaList& deltas) override {
    switch (state_) {
      case State::start:
        return start(last, deltas);
      case State::list:
        return list(last);
      case State::object:
        return object(last, deltas);
      case State::named:
        return named(last, deltas);
    }
    return false;
  }

  // Behind the mark: a list of objects, or a name with its arguments.
  bool start(bool last, DeltaList& deltas) {
    const std::size_t at = skip_space(held, kOpen.size());
    const std::string_view rest = std::string_view(held).substr(at);
    if (rest.empty()) {
      if (last) give_up(held.size(), deltas);
      return false;
    }
    if (rest[0] == '[' || rest[0] == '{') {
      held.erase(0, at + (rest[0] == '[' ? 1 : 0));
      state_ = State::list;
      return true;
    }
    const std::size_t object = rest.find('{');
    if (object == std::string_view::npos) {
      if (last) give_up(held.size(), deltas);
      return false;
    }
    std::string_view name = rest.substr(0, object);
    std::string_view id;
    name = name.substr(0, name.find(kArguments));
    if (const std::size_t mark = name.find(kId); mark != std::string_view::npos) {
      id = name.substr(mark + kId.size());
      name = name.substr(0, mark);
    }
    while (!name.empty() && kSpace.find(name.back()) != std::string_view::npos) name.remove_suffix(1);
    deltas.start_call(name, calls, id);
    held.erase(0, at + object);
    arguments_ = JsonStream();
    state_ = State::named;
    return true;
  }

  bool list(bool last) {
    std::size_t at = skip_space(held, 0);
    if (at < held.size() && held[at] == ',') at = skip_space(held, at + 1);
    if (at == held.size() && !last) return false;
    if (at < held.size() && held[at] == '{') {
      held.erase(0, at);
      call_.emplace(calls);
      state_ = State::object;
      return true;
    }
    held.erase(0, at < held.size() && held[at] == ']' ? at + 1 : at);
    return leave();
  }

  bool object(bool last, DeltaList& deltas) {
    held.erase(0, call_->push(held, deltas));
    if (call_->status() == JsonCall::Status::more && !last) return false;
    if (!call_->started()) return leave();
    if (call_->status() != JsonCall::Status::done) {
      call_->close(deltas);
      held.clear();
    }
    ++calls;
    state_ = State::list;
    return true;
  }

  bool named(bool last, DeltaList& deltas) {
    held.erase(0, arguments_.push(held));
    if (arguments_.status() == JsonStream::Status::invalid || last) arguments_.close();
    deltas.add(ChatDelta::Kind::tool_arguments, arguments_.take(), calls);
    if (arguments_.status() == JsonStream::Status::more) return false;
    ++calls;
    return leave();
  }

  bool leave() {
    state_ = State::start;
    end_call();
    return true;
  }

  State state_ = State::start;
  std::optional<JsonCall> call_;
  JsonStream arguments_;
};

}  // namespace

std::unique_ptr<ToolParser> make_hermes_parser() {
  return std::make_unique<HermesParser>();
}
std::unique_ptr<ToolParser> make_llama_parser(ToolSchemas schemas) {
  return std::make_unique<LlamaParser>(std::move(schemas));
}
std::unique_ptr<ToolParser> make_mistral_parser() {
  return std::make_unique<MistralParser>();
}

}  // namespace pergola
