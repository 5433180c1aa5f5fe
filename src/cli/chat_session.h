#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat/chat_template.h"
#include "text/chat/output_parser.h"

namespace pergola {

/// The messages of a conversation between a person and a model.
class ChatSession {
 public:
  /// `system` comes first when it is not empty.
  ChatSession(ChatTemplate chat_template, const std::string& system);

  const ChatTemplate& chat_template() const { return template_; }
  /// Sets a variable of the template.
  void set_variable(const std::string& name, const nlohmann::ordered_json& value) { options_.variables[name] = value; }

  /// Adds a person's message and gives the prompt for its answer. Throws Error when the template does not take it; the
  /// message is dropped then.
  std::string begin_turn(const std::string& text);
  /// A parser for the answer to this prompt.
  std::unique_ptr<OutputParser> parser(const std::string& prompt) const;
  /// Adds the answer.
  void end_turn(const ChatAnswer& answer);
  /// Takes the message back that has no answer.
  void drop_turn();
  /// Forgets everything but the system message.
  void clear();

 private:
  ChatTemplate template_;
  ChatOptions options_;
  nlohmann::ordered_json start_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json messages_;
};

}  // namespace pergola
