#include "text/chat/json_call.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "format/json.h"

namespace pergola {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::optional<std::string> decoded_string(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

}  // namespace

std::size_t JsonCall::push(std::string_view text, DeltaList& deltas) {
  std::size_t at = 0;
  while (at < text.size() && status_ == Status::more) {
    if (state_ != State::key && state_ != State::value) {
      between(text[at]);
      if (status_ == Status::more) ++at;
      if (status_ == Status::done) {
        ++at;
        finish(deltas);
      }
      continue;
    }
    at += value_.push(text.substr(at));
    text_ += value_.take();
    if (value_.status() == JsonStream::Status::invalid) {
      status_ = Status::failed;
    } else if (value_.status() == JsonStream::Status::done) {
      if (state_ == State::key) {
        end_key();
      } else {
        end_value(deltas);
      }
    } else {
      pass_on(deltas);
    }
  }
  return at;
}

// Brackets, commas and colons of the object itself.
void JsonCall::between(char c) {
  if (is_space(c)) return;
  if (state_ == State::begin && c == '{') {
    state_ = State::key;
  } else if (state_ == State::colon && c == ':') {
    state_ = State::value;
  } else if (state_ == State::after && c == ',') {
    state_ = State::key;
  } else if (state_ == State::after && c == '}') {
    status_ = Status::done;
  } else {
    status_ = Status::failed;
  }
  value_ = JsonStream();
}

void JsonCall::end_key() {
  const std::optional<std::string> key = decoded_string(std::exchange(text_, {}));
  if (!key) {
    status_ = Status::failed;
    return;
  }
  member_ = *key == "name"                                ? Member::name
            : *key == "arguments" || *key == "parameters" ? Member::arguments
            : *key == "id"                                ? Member::id
                                                          : Member::other;
  state_ = State::colon;
}

// Arguments that are an object go out as they come, once the call was started.
void JsonCall::pass_on(DeltaList& deltas) {
  if (state_ != State::value || member_ != Member::arguments || !started_ || text_.empty()) return;
  if (!any_arguments_ && text_[0] != '{') return;
  any_arguments_ = true;
  deltas.add(ChatDelta::Kind::tool_arguments, std::exchange(text_, {}), call_);
}

void JsonCall::end_value(DeltaList& deltas) {
  pass_on(deltas);
  state_ = State::after;
  if (member_ == Member::arguments) {
    if (any_arguments_) return;
    arguments_ = std::exchange(text_, {});
    if (const auto inner = decoded_string(arguments_)) arguments_ = *inner;  // JSON within a string
    return;
  }
  const std::optional<std::string> text = decoded_string(std::exchange(text_, {}));
  if (member_ == Member::id && text) id_ = *text;
  if (member_ != Member::name || started_) return;
  if (!text || text->empty() || (accepts_ && !accepts_(*text))) {
    status_ = Status::failed;
    return;
  }
  started_ = true;
  deltas.start_call(*text, call_, id_);
}

void JsonCall::finish(DeltaList& deltas) {
  if (!started_) {
    status_ = Status::failed;
    return;
  }
  if (any_arguments_) return;
  bool object = false;
  try {
    object = parse_json(arguments_, "").is_object();
  } catch (const Error&) {
    object = false;
  }
  deltas.add(ChatDelta::Kind::tool_arguments, object ? arguments_ : "{}", call_);
}

void JsonCall::close(DeltaList& deltas) {
  if (any_arguments_ && state_ == State::value) {
    value_.close();
    deltas.add(ChatDelta::Kind::tool_arguments, value_.take(), call_);
  } else {
    finish(deltas);
  }
  status_ = Status::done;
}

}  // namespace pergola
