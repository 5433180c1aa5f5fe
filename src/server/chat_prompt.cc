#include "server/chat_prompt.h"

namespace pergola {

std::optional<ChatPrompt> ChatPrompt::chatml(const Tokenizer& tokenizer) {
  if (!tokenizer.id_of("<|im_start|>") || !tokenizer.id_of("<|im_end|>")) return std::nullopt;
  return ChatPrompt();
}

std::string ChatPrompt::render(const nlohmann::ordered_json& messages) const {
  std::string prompt;
  for (const auto& message : messages) {
    prompt += "<|im_start|>" + message.at("role").get<std::string>() + "\n";
    prompt += message.at("content").get<std::string>() + "<|im_end|>\n";
  }
  return prompt + "<|im_start|>assistant\n";
}

}  // namespace pergola
