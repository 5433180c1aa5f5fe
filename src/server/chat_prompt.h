#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace pergola {

/// How a conversation becomes a prompt.
class ChatPrompt {
 public:
  /// ChatML, for tokenizers that have its marks.
  static std::optional<ChatPrompt> chatml(const Tokenizer& tokenizer);

  /// The prompt after which the model writes the next message of the assistant. `messages` as read_chat_messages makes
  /// them.
  std::string render(const nlohmann::ordered_json& messages) const;
};

}  // namespace pergola
