#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/checkpoint_writer.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::write_text;

const std::string kStory = std::string(PERGOLA_SOURCE_DIR) + "/models/story";

Tokenizer story() {
  return Tokenizer::load(kStory);
}

const ordered_json kMessages =
    ordered_json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])");
const ordered_json kTools = ordered_json::parse(R"([{"type": "function", "function": {"name": "now"}}])");

template <typename Act>
std::string error_of(Act act) {
  try {
    act();
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplateFolder, ChatMlWhereTheTokenizerHasItsMarks) {
  const ChatTemplate chat = ChatTemplate::load(kStory, story());
  EXPECT_TRUE(chat.is_fallback());
  EXPECT_THAT(chat.origin(), HasSubstr("ChatML"));
  EXPECT_EQ(chat.render(kMessages, nullptr, {}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.format().tools, ToolFormat::hermes);
  const std::string prompt = chat.render(kMessages, kTools, {.add_generation_prompt = false});
  EXPECT_THAT(prompt, HasSubstr("<|im_start|>system\nS\n\n"));
  EXPECT_THAT(prompt, HasSubstr(R"({"type": "function", "function": {"name": "now"}})"));
  EXPECT_TRUE(prompt.ends_with("<|im_start|>user\nHi<|im_end|>\n"));
}

TEST(ChatTemplateFolder, FileBeforeConfigAndNamedTemplates) {
  const TempFolder folder;
  std::filesystem::copy(kStory, folder / "m");
  const auto load = [&] { return ChatTemplate::load(folder / "m", story()); };
  write_text(folder / "m/tokenizer_config.json",
             R"({"eos_token": "<|im_end|>", "chat_template": "C{{ eos_token }}{{ bos_token is defined }}"})");
  EXPECT_EQ(ChatTemplate::load(folder / "m", Tokenizer::load(folder / "m")).render(kMessages, nullptr, {}),
            "C<|im_end|>False");
  write_text(folder / "m/tokenizer_config.json",
             R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(load().render(kMessages, nullptr, {}), "D");
  EXPECT_EQ(load().render(kMessages, kTools, {}), "T");
  write_text(folder / "m/tokenizer_config.json", R"({"chat_template": [{"name": "other", "template": "D"}]})");
  EXPECT_THAT(error_of(load), HasSubstr("named 'default'"));
  write_text(folder / "m/tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(error_of(load), HasSubstr("chat_template"));
  write_text(folder / "m/chat_template.jinja", "F{{ enable_thinking is defined }}");
  EXPECT_EQ(load().render(kMessages, nullptr, {}), "FFalse");
  EXPECT_EQ(load().render(kMessages, nullptr, {.variables = {{"enable_thinking", false}}}), "FTrue");
  write_text(folder / "m/chat_template.jinja", "x\n{% if %}");
  EXPECT_THAT(error_of(load), HasSubstr("chat_template.jinja:2"));
}

TEST(ChatTemplateFolder, NoTemplateAndNoMarksIsAnError) {
  const TempFolder folder;
  const Tokenizer plain = Tokenizer::load(std::string(PERGOLA_SOURCE_DIR) + "/tests/data/tokenizers/gpt2");
  EXPECT_THAT(error_of([&] { ChatTemplate::load(folder.path(), plain); }), HasSubstr("no chat template"));
}

TEST(ChatTemplateMessages, AreCheckedAndPrepared) {
  const ChatTemplate chat = ChatTemplate::from_source(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}:{% for c in m.tool_calls or [] %}{{ c.function.arguments.a "
      "}}{% endfor %};{% endfor %}",
      "t", story());
  const auto render = [&](const char* messages) {
    try {
      return chat.render(ordered_json::parse(messages), nullptr, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(
      render(R"([{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"),
      "system:a\nb:;");
  EXPECT_EQ(
      render(
          R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 5}"}}]}])"),
      "assistant::5;");
  EXPECT_THAT(render(R"({"role": "user"})"), HasSubstr("messages must be a list"));
  EXPECT_THAT(render(R"([5])"), HasSubstr("messages[0]"));
  EXPECT_THAT(render(R"([{"content": "x"}])"), HasSubstr("messages[0].role"));
  EXPECT_THAT(render(R"([{"role": "user", "content": 5}])"), HasSubstr("messages[0].content"));
  EXPECT_THAT(render(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
              HasSubstr("\"image_url\" are not supported"));
  EXPECT_THAT(render(R"([{"role": "user", "content": [{"type": "text"}]}])"), HasSubstr("messages[0].content[0].text"));
  EXPECT_THAT(render(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "nope"}}]}])"),
              HasSubstr("arguments"));
  EXPECT_THAT(render(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])"),
              HasSubstr("name"));
  EXPECT_THAT(render(R"([{"role": "assistant", "tool_calls": 5}])"), HasSubstr("tool_calls"));
}

TEST(ChatFormatDetection, ReadsTheMarks) {
  const auto tools = [&](const char* source) { return detect_chat_format(source, story()).tools; };
  EXPECT_EQ(tools("x"), ToolFormat::none);
  EXPECT_EQ(tools("<tool_call>\n<function=a>"), ToolFormat::qwen_xml);
  EXPECT_EQ(tools("<tool_call>{"), ToolFormat::hermes);
  EXPECT_EQ(tools("<tool_call>{n}\n<arg_key>"), ToolFormat::glm);
  EXPECT_EQ(tools("[TOOL_CALLS]"), ToolFormat::mistral);
  EXPECT_EQ(tools("'\"parameters\": '"), ToolFormat::llama);
  EXPECT_FALSE(detect_chat_format("x", story()).reasoning);
  EXPECT_EQ(detect_chat_format("<think>", story()).reasoning->close, "</think>");
  EXPECT_FALSE(detect_chat_format("<think>", story()).marks_are_special);
  const ReasoningMarks marks{"<think>", "</think>"};
  EXPECT_TRUE(starts_in_reasoning("a<think>\n", marks));
  EXPECT_FALSE(starts_in_reasoning("a<think>\n\n</think>\n\n", marks));
  EXPECT_FALSE(starts_in_reasoning("user said <think> assistant:", marks));
}

}  // namespace
}  // namespace pergola
