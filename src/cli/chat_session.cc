#include "cli/chat_session.h"

#include "base/error.h"

namespace pergola {

ChatSession::ChatSession(ChatTemplate chat_template, const std::string& system) : template_(std::move(chat_template)) {
  if (!system.empty()) start_.push_back({{"role", "system"}, {"content", system}});
  messages_ = start_;
}

std::string ChatSession::begin_turn(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  try {
    return template_.render(messages_, nullptr, options_);
  } catch (const Error&) {
    drop_turn();
    throw;
  }
}

std::unique_ptr<OutputParser> ChatSession::parser(const std::string& prompt) const {
  return make_output_parser(template_.format(), {.prompt = prompt});
}

void ChatSession::end_turn(const ChatAnswer& answer) {
  nlohmann::ordered_json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  messages_.push_back(std::move(message));
}

void ChatSession::drop_turn() {
  messages_.erase(messages_.size() - 1);
}

void ChatSession::clear() {
  messages_ = start_;
}

}  // namespace pergola
