#include "text/chat/json_stream.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace pergola {
namespace {

constexpr std::string_view kReplacement = "\\ufffd";

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

bool is_scalar_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

// A literal or number that was cut off, completed; what is none becomes null.
std::string mended(const std::string& text, bool cut_off) {
  for (const auto& [python, json] :
       {std::pair("True", "true"), std::pair("False", "false"), std::pair("None", "null")}) {
    if (text == python || (cut_off && std::string_view(python).starts_with(text))) return json;
  }
  if (nlohmann::json::accept(text)) return text;
  if (cut_off) {
    for (const std::string_view literal : {"true", "false", "null"}) {
      if (literal.starts_with(text)) return std::string(literal);
    }
    if (nlohmann::json::accept(text + "0")) return text + "0";
  }
  return "null";
}

}  // namespace

std::string JsonStream::take() {
  return std::exchange(out_, {});
}

void JsonStream::emit(std::string_view text) {
  if (in_key_) {
    held_ += text;
    return;
  }
  out_ += std::exchange(held_, {});
  out_ += text;
}

std::size_t JsonStream::push(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && status_ == Status::more) {
    if (!take_byte(text[at])) break;
    ++at;
  }
  return at;
}

void JsonStream::end_value() {
  state_ = State::after;
  if (open_.empty()) status_ = Status::done;
}

bool JsonStream::open(char bracket) {
  if (open_.size() == kMaxDepth) {
    status_ = Status::invalid;
    return false;
  }
  emit(std::string_view(&bracket, 1));
  open_.push_back(bracket == '{' ? '}' : ']');
  state_ = bracket == '{' ? State::first_key : State::first_item;
  return true;
}

bool JsonStream::begin_value(char c) {
  if (c == '{' || c == '[') return open(c);
  if (c == '"') {
    emit("\"");
    state_ = State::string;
    return true;
  }
  if (!is_scalar_byte(c)) {
    status_ = Status::invalid;
    return false;
  }
  pending_ = c;
  state_ = State::scalar;
  return true;
}

// False when the byte does not belong to the value.
bool JsonStream::take_byte(char c) {
  switch (state_) {
    case State::string:
      string_byte(c);
      return true;
    case State::escape:
      escape_byte(c);
      return true;
    case State::scalar:
      if (is_scalar_byte(c) && pending_.size() < kMaxScalar) {
        pending_ += c;
        return true;
      }
      end_scalar(false);
      return status_ == Status::more && take_byte(c);
    default:
      break;
  }
  if (is_space(c)) {
    if (!open_.empty()) held_ += c;
    return true;
  }
  const bool ends = !open_.empty() && c == open_.back() &&
                    (state_ == State::after || state_ == State::first_key || state_ == State::first_item);
  if (ends) {
    emit(std::string_view(&c, 1));
    open_.pop_back();
    end_value();
    return true;
  }
  if (state_ == State::value || state_ == State::first_item) return begin_value(c);
  if ((state_ == State::first_key || state_ == State::key) && c == '"') {
    state_ = State::string;
    in_key_ = true;
  } else if (state_ == State::colon && c == ':') {
    state_ = State::value;
  } else if (state_ == State::after && c == ',') {
    state_ = open_.back() == '}' ? State::key : State::value;
  } else {
    status_ = Status::invalid;
    return false;
  }
  held_ += c;
  return true;
}

void JsonStream::end_string() {
  emit("\"");
  if (!in_key_) return end_value();
  in_key_ = false;
  state_ = State::colon;
}

void JsonStream::string_byte(char c) {
  if (c != '\\') drop_lone_surrogate();
  if (c == '\\') {
    pending_ = c;
    state_ = State::escape;
  } else if (c == '"') {
    end_string();
  } else if (c == '\n') {
    emit("\\n");
  } else if (static_cast<unsigned char>(c) < 0x20) {
    emit(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
  } else {
    emit(std::string_view(&c, 1));
  }
}

void JsonStream::escape_byte(char c) {
  pending_ += c;
  const bool unicode = pending_[1] == 'u';
  if (unicode && (pending_.size() == 2 || (is_hex(c) && pending_.size() < 6))) return;
  const bool complete = unicode ? is_hex(c) : std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
  const std::string text = std::exchange(pending_, {});
  state_ = State::string;
  if (complete && unicode) return unicode_escape(text);
  drop_lone_surrogate();
  if (complete) return emit(text);
  emit("\\\\");  // the backslash stands for itself
  for (const char rest : text.substr(1)) {
    if (state_ == State::string) string_byte(rest);
  }
}

// A pair of surrogates is one character; half a pair is none.
void JsonStream::unicode_escape(const std::string& text) {
  const unsigned long code = std::stoul(text.substr(2), nullptr, 16);
  const bool low = code >= 0xDC00 && code < 0xE000;
  if (low && !high_surrogate_.empty()) return emit(std::exchange(high_surrogate_, {}) + text);
  drop_lone_surrogate();
  if (code >= 0xD800 && code < 0xDC00) {
    high_surrogate_ = text;
  } else {
    emit(low ? kReplacement : std::string_view(text));
  }
}

void JsonStream::drop_lone_surrogate() {
  if (high_surrogate_.empty()) return;
  high_surrogate_.clear();
  emit(kReplacement);
}

void JsonStream::end_scalar(bool cut_off) {
  emit(mended(std::exchange(pending_, {}), cut_off));
  end_value();
}

void JsonStream::close() {
  if (status_ == Status::done) return;
  if (state_ == State::string || state_ == State::escape) {
    pending_.clear();
    high_surrogate_.clear();
    if (!std::exchange(in_key_, false)) emit("\"");
  } else if (state_ == State::scalar) {
    end_scalar(true);
  } else if (open_.empty()) {
    emit("null");
  }
  held_.clear();
  for (; !open_.empty(); open_.pop_back()) out_ += open_.back();
  status_ = Status::done;
}

}  // namespace pergola
