#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat/chat_format.h"

namespace pergola {

class Tokenizer;

/// What a conversation becomes a prompt with.
struct ChatOptions {
  /// The prompt ends where the assistant's turn begins.
  bool add_generation_prompt = true;
  /// Further variables of the template, an object: enable_thinking, documents, reasoning_effort, ... Those it does not
  /// name stay undefined, which a template can tell from null.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

/// Turns conversations into prompts as the template of a model folder says (Jinja, docs/chat.md). Immutable; safe to
/// use from several threads. Copies share the program.
class ChatTemplate {
 public:
  /// Reads `chat_template.jinja` of `folder`, else "chat_template" of its tokenizer_config.json (a template, or a list
  /// of named ones of which "default" is used, and "tool_use" when tools are given), else takes ChatML if the tokenizer
  /// has <|im_start|> and <|im_end|>. Throws Error when there is none of these, or when the template does not compile.
  static ChatTemplate load(const std::filesystem::path& folder, const Tokenizer& tokenizer);

  /// From a template's text; `name` stands for the file in errors. The beginning and end tokens are the tokenizer's.
  static ChatTemplate from_source(std::string source, const std::string& name, const Tokenizer& tokenizer);

  /// The prompt of a conversation. `messages` is an array of objects in the form of OpenAI's chat completions; `tools`
  /// is an array of such tools, or null. Before the template sees them, arguments of tool calls become objects, a list
  /// of text parts becomes its text (for templates that know no parts), and the role "developer" becomes "system" where
  /// the template does not know it. Encode the prompt with add_special_tokens = false: templates write all of them.
  ///
  /// Throws Error for messages that are no such array, for what the template itself raises, and for a template that
  /// takes too many steps or writes too much.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     const ChatOptions& options) const;

  /// Where it came from, for people: a file's name, or that the folder has none and ChatML is used.
  const std::string& origin() const;
  /// Whether the folder has no template of its own.
  bool is_fallback() const;

  /// A token that ends a turn in this format and may be missing from the model's own stop tokens: <|im_end|> of the
  /// ChatML that stands in for a missing template.
  std::optional<std::int32_t> end_of_turn() const;

  /// How the model's output is to be read; see make_output_parser.
  const ChatFormat& format() const;

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace pergola
