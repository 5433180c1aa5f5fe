#include "text/chat/chat_template.h"

#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/json.h"
#include "text/jinja/template.h"
#include "text/json_node.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

/// ChatML for folders without a template: turns between <|im_start|> and <|im_end|>.
constexpr std::string_view kChatMl = R"(
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

/// The same for tokenizers that also have <tool_call>: tools are listed to the model and its calls written back as
/// JSON.
constexpr std::string_view kChatMlWithTools = R"(
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages and messages[0].role == 'system' %}
        {{- (messages[0].content or '') + '\n\n' }}
    {%- endif %}
    {{- 'These functions can be called:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\nA call is written as\n<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in (messages[1:] if tools and messages and messages[0].role == 'system' else messages) %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + (message.content or '') + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": ' + call.function.name | tojson + ', "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

/// Where a value of the request is, for errors.
Where at(const std::string& field) {
  return {.field = field};
}

std::optional<std::string> token_text(const Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  const auto piece = id ? tokenizer.piece_of(*id) : std::nullopt;
  return piece ? std::optional<std::string>(*piece) : std::nullopt;
}

// Arguments as templates want them: an object, not its text.
void parse_arguments(ordered_json& call, const std::string& place) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
    fail(at(place), "a tool call must be an object with a 'function'");
  }
  ordered_json& function = call["function"];
  if (!function.contains("name") || !function["name"].is_string()) {
    fail(at(place + ".function.name"), "the name of a function must be a string");
  }
  const std::string field = place + ".function.arguments";
  if (!function.contains("arguments") || function["arguments"].is_null())
    function["arguments"] = ordered_json::object();
  ordered_json& arguments = function["arguments"];
  if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    arguments = text.empty() ? ordered_json::object() : parse_ordered_json(text, field);
  }
  if (!arguments.is_object()) fail(at(field), "arguments must be a JSON object");
}

// Text parts, checked; joined to one text when the template knows no parts.
void read_parts(ordered_json& content, const std::string& place, bool keep) {
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const ordered_json& part = content[i];
    const std::string field = fmt::format("{}[{}]", place, i);
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      fail(at(field), "a part of a content must be an object with a 'type'");
    }
    if (part["type"] != "text") {
      fail(at(field), "parts of type {} are not supported, only text", in_quotes(part["type"].get<std::string>()));
    }
    if (!part.contains("text") || !part["text"].is_string()) fail(at(field + ".text"), "a text must be a string");
    if (i > 0) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  if (!keep) content = std::move(text);
}

}  // namespace

struct ChatTemplate::Parts {
  struct Named {
    std::string source;
    jinja::Template program;
  };

  static Named compile(std::string source, const std::string& name) {
    if (source.size() > kMaxTemplateBytes)
      fail({.file = name}, "the template is longer than {} bytes", kMaxTemplateBytes);
    jinja::Template program(source, name);
    return {std::move(source), std::move(program)};
  }

  Named plain;
  std::optional<Named> with_tools;  ///< for requests with tools, where the folder has a second template
  std::string origin;
  bool fallback = false;
  std::optional<std::int32_t> end_of_turn;
  ChatFormat format;
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  bool knows_parts = false;
  bool knows_developer = false;

  void finish(const Tokenizer& tokenizer) {
    const std::string all = plain.source + (with_tools ? with_tools->source : "");
    format = detect_chat_format(all, tokenizer);
    bos = token_text(tokenizer, tokenizer.bos_id());
    eos = token_text(tokenizer, tokenizer.eos_id());
    knows_parts = all.find(".text") != std::string::npos || all.find("'text'") != std::string::npos ||
                  all.find("\"text\"") != std::string::npos;
    knows_developer = all.find("developer") != std::string::npos;
  }

  ordered_json prepared(const ordered_json& messages) const {
    if (!messages.is_array()) fail(at("messages"), "messages must be a list");
    ordered_json result = messages;
    for (std::size_t i = 0; i < result.size(); ++i) {
      ordered_json& message = result[i];
      const std::string place = fmt::format("messages[{}]", i);
      if (!message.is_object()) fail(at(place), "a message must be an object");
      if (!message.contains("role") || !message["role"].is_string())
        fail(at(place + ".role"), "a role must be a string");
      if (message["role"] == "developer" && !knows_developer) message["role"] = "system";
      if (message.contains("content")) {
        ordered_json& content = message["content"];
        if (content.is_array()) read_parts(content, place + ".content", knows_parts);
        if (!content.is_string() && !content.is_array() && !content.is_null()) {
          fail(at(place + ".content"), "a content must be a string, a list of parts or null");
        }
      }
      if (!message.contains("tool_calls") || message["tool_calls"].is_null()) continue;
      ordered_json& calls = message["tool_calls"];
      if (!calls.is_array()) fail(at(place + ".tool_calls"), "tool_calls must be a list");
      for (std::size_t j = 0; j < calls.size(); ++j) {
        parse_arguments(calls[j], fmt::format("{}.tool_calls[{}]", place, j));
      }
    }
    return result;
  }
};

namespace {

std::optional<std::string> read_template_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

ChatTemplate ChatTemplate::from_source(std::string source, const std::string& name, const Tokenizer& tokenizer) {
  auto parts = std::make_shared<Parts>(Parts{.plain = Parts::compile(std::move(source), name), .origin = name});
  parts->finish(tokenizer);
  return ChatTemplate(std::move(parts));
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const std::filesystem::path file = folder / kTemplateFile;
  if (auto source = read_template_file(file)) {
    return from_source(std::move(*source), file.string(), tokenizer);
  }
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_path)) {
    const nlohmann::json config = read_json_file(config_path);
    const JsonNode root(config, config_path.string());
    if (root.has("chat_template")) {
      const JsonNode node = root.require("chat_template");
      const std::string name = config_path.string() + ", chat_template";
      if (node.is_string()) return from_source(node.string(), name, tokenizer);
      std::optional<std::string> plain;
      std::optional<std::string> with_tools;
      for (const JsonNode& entry : node.items()) {
        const std::string& label = entry.require("name").string();
        if (label == "default") plain = entry.require("template").string();
        if (label == "tool_use") with_tools = entry.require("template").string();
      }
      if (!plain) fail(node.where(), "none of the templates is named 'default'");
      auto parts = std::make_shared<Parts>(Parts{.plain = Parts::compile(std::move(*plain), name), .origin = name});
      if (with_tools) parts->with_tools = Parts::compile(std::move(*with_tools), name);
      parts->finish(tokenizer);
      return ChatTemplate(std::move(parts));
    }
  }
  if (!tokenizer.id_of("<|im_start|>") || !tokenizer.id_of("<|im_end|>")) {
    fail({.file = folder.string()},
         "no chat template ({} or chat_template in tokenizer_config.json), and the tokenizer has no <|im_start|> and "
         "<|im_end|> for ChatML",
         kTemplateFile);
  }
  const std::string_view source = tokenizer.id_of("<tool_call>") ? kChatMlWithTools : kChatMl;
  auto parts = std::make_shared<Parts>(Parts{.plain = Parts::compile(std::string(source), "ChatML"),
                                             .origin = "ChatML: the folder has no template of its own",
                                             .fallback = true});
  parts->end_of_turn = tokenizer.id_of("<|im_end|>");
  parts->finish(tokenizer);
  return ChatTemplate(std::move(parts));
}

std::string ChatTemplate::render(const ordered_json& messages, const ordered_json& tools,
                                 const ChatOptions& options) const {
  if (!tools.is_null() && !tools.is_array()) fail(at("tools"), "tools must be a list");
  if (!options.variables.is_object()) fail(at("chat_template_kwargs"), "template variables must be an object");
  ordered_json variables = ordered_json::object();
  if (parts_->bos) variables["bos_token"] = *parts_->bos;
  if (parts_->eos) variables["eos_token"] = *parts_->eos;
  variables["documents"] = nullptr;
  for (const auto& [name, value] : options.variables.items()) variables[name] = value;
  variables["messages"] = parts_->prepared(messages);
  variables["tools"] = tools.empty() ? ordered_json(nullptr) : tools;
  variables["add_generation_prompt"] = options.add_generation_prompt;
  const bool second = parts_->with_tools && !tools.empty();
  return (second ? *parts_->with_tools : parts_->plain).program.render(variables);
}

const std::string& ChatTemplate::origin() const {
  return parts_->origin;
}
bool ChatTemplate::is_fallback() const {
  return parts_->fallback;
}
std::optional<std::int32_t> ChatTemplate::end_of_turn() const {
  return parts_->end_of_turn;
}
const ChatFormat& ChatTemplate::format() const {
  return parts_->format;
}

}  // namespace pergola
