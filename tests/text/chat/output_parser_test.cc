#include "text/chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pergola {
namespace {

using nlohmann::ordered_json;

const ordered_json kTools = ordered_json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "limit": {"type": "number"},
    "place": {"type": "object"}, "tags": {"type": "array"}, "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "text_or_null": {"type": ["string", "null"]}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])");

ChatFormat format_of(ToolFormat tools) {
  return {.tools = tools, .reasoning = ReasoningMarks{"<think>", "</think>"}};
}

struct Case {
  ToolFormat tools;
  std::string prompt;
};

ChatAnswer parse(const Case& setting, const std::vector<std::string_view>& pieces, bool with_tools = true) {
  const auto parser = make_output_parser(
      format_of(setting.tools), {.prompt = setting.prompt, .tools = with_tools ? kTools : ordered_json(nullptr)});
  ChatAnswer answer;
  std::vector<std::string> calls;
  const auto take = [&](const std::vector<ChatDelta>& deltas) {
    for (const ChatDelta& delta : deltas) answer.add(delta);
  };
  for (const std::string_view piece : pieces) take(parser->push(piece));
  take(parser->finish());
  return answer;
}

std::string describe(const ChatAnswer& answer) {
  std::string text = "[" + answer.reasoning + "][" + answer.content + "]";
  for (const auto& call : answer.tool_calls) {
    EXPECT_TRUE(ordered_json::parse(call.arguments, nullptr, false).is_object()) << call.arguments;
    text += " " + call.name + call.arguments;
  }
  return text;
}

// However the text is cut, the answer is the same.
void expect(const Case& setting, const std::string& text, const std::string& wanted, bool with_tools = true) {
  SCOPED_TRACE(text);
  EXPECT_EQ(describe(parse(setting, {text}, with_tools)), wanted);
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(std::string_view(text).substr(i, 1));
  EXPECT_EQ(describe(parse(setting, bytes, with_tools)), wanted);
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const std::string_view view = text;
    ASSERT_EQ(describe(parse(setting, {view.substr(0, cut), view.substr(cut)}, with_tools)), wanted) << cut;
  }
}

// Cut off anywhere, calls still have arguments that are JSON objects, and no part of a mark is shown.
void expect_every_start_is_sound(const Case& setting, const std::string& text) {
  for (std::size_t size = 0; size <= text.size(); ++size) {
    SCOPED_TRACE(text.substr(0, size));
    describe(parse(setting, {std::string_view(text).substr(0, size)}));
  }
}

TEST(Reasoning, OpenedByTheModelOrByThePrompt) {
  const Case model{ToolFormat::none, "<|im_start|>assistant\n"};
  const Case prompt{ToolFormat::none, "<|im_start|>assistant\n<think>\n"};
  const Case closed{ToolFormat::none, "<|im_start|>assistant\n<think>\n\n</think>\n\n"};
  expect(model, "<think>\nI see.\n</think>\n\nHello", "[I see.][Hello]");
  expect(model, "\n<think>a</think>b", "[a][b]");
  expect(model, "Hello <think>a</think>", "[][Hello <think>a</think>]");
  expect(model, "<thin", "[][<thin]");
  expect(model, "  \n", "[][  \n]");
  expect(prompt, "I see.\n\nMore.\n</think>\n\nHello\n", "[I see.\n\nMore.][Hello\n]");
  expect(prompt, "only thoughts", "[only thoughts][]");
  expect(prompt, "a </thin b", "[a </thin b][]");
  expect(prompt, "</think>\n\nx", "[][x]");
  expect(prompt, "\n\na\n\n</think>x</think>y", "[\na\n][x</think>y]");
  expect(closed, "Hello", "[][Hello]");
}

TEST(Reasoning, ACallEndsIt) {
  expect({ToolFormat::hermes, "<think>\n"},
         "Look it up\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "[Look it up][] now{}");
}

TEST(ToolCalls, Hermes) {
  const Case hermes{ToolFormat::hermes, ""};
  expect(hermes, "Just text.\n", "[][Just text.\n]");
  expect(hermes, "a < b <tool", "[][a < b <tool]");
  expect(hermes,
         "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
         "2}}\n</tool_call>",
         "[][I look.] get_weather{\"city\": \"Rome\", \"days\": 2}");
  expect(hermes,
         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", "
         "\"arguments\": "
         "{\"place\": {\"a\": [1, {\"b\": \"}]\\\"\"}]}}}\n</tool_call>\n",
         "[][] now{} get_weather{\"place\": {\"a\": [1, {\"b\": \"}]\\\"\"}]}}");
  expect(hermes, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"now\"}</tool_call>", "[][] now{\"x\": 1}");
  expect(hermes, "<tool_call>{\"name\": \"now\"}</tool_call>", "[][] now{}");
  expect(hermes, "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>", "[][] now{\"x\": 1}");
  expect(hermes, "<tool_call>no json</tool_call>", "[][<tool_call>no json</tool_call>]");
  expect(hermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"x\": \"a\nb\", \"y\": True}}</tool_call>",
         "[][] now{\"x\": \"a\\nb\", \"y\": true}");
  expect(hermes, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ro",
         "[][] get_weather{\"city\": \"Ro\"}");
  expect(hermes, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"days\": 1, \"ci",
         "[][] get_weather{\"days\": 1}");
  expect_every_start_is_sound(hermes,
                              "x<tool_call>{\"name\": \"a\", \"arguments\": {\"k\": [1.5e3, tru, {\"q\": null, \"s\": "
                              "\"\\u00e9\\n\"}], \"z\": -1}}</tool_call>");
}

TEST(ToolCalls, WithoutToolsNothingIsACall) {
  const std::string text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  expect({ToolFormat::hermes, ""}, text, "[][" + text + "]", false);
}

TEST(ToolCalls, QwenXmlWithTypesFromTheSchema) {
  const Case qwen{ToolFormat::qwen_xml, ""};
  expect(qwen,
         "Sure.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2.0\n</"
         "parameter>\n"
         "<parameter=exact>\nTrue\n</parameter>\n<parameter=limit>\n1.5\n</parameter>\n<parameter=place>\n{'a': None, "
         "\"b\": "
         "[1]}\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=unknown>\n12\n</parameter>\n</"
         "function>\n</tool_call>",
         "[][Sure.] get_weather{\"city\": \"Rome\", \"days\": 2, \"exact\": true, \"limit\": 1.5, \"place\": "
         "{\"a\":null,\"b\":[1]}, \"maybe\": null, \"unknown\": \"12\"}");
  expect(
      qwen,
      "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
      "[][] now{} now{}");
  expect(qwen, "<function=now>\n</function>", "[][] now{}");
  expect(qwen, "<tool_call>\n<function=get_weather>\n<parameter=city>\nnull\n</parameter>\n</function>\n</tool_call>",
         "[][] get_weather{\"city\": \"null\"}");
  expect(qwen,
         "<tool_call>\n<function=get_weather>\n<parameter=text_or_null>\nnull\n</parameter>\n</function>\n</tool_call>",
         "[][] get_weather{\"text_or_null\": null}");
  expect(qwen,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\n\na</parameter> "
         "b\n<b>\n\n</parameter>\n</function>\n</tool_call>",
         "[][] get_weather{\"city\": \"\\na</parameter> b\\n<b>\\n\"}");
  expect(qwen,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n3\n</parameter>\n</"
         "function>\n</tool_call>",
         "[][] get_weather{\"city\": \"Rome\", \"days\": 3}");
  expect(qwen,
         "<tool_call>\n<function=get_weather>\n<parameter=days>\nthree\n</parameter>\n</function>\n</tool_call>ok",
         "[][ok] get_weather{\"days\": \"three\"}");
  expect(qwen, "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=da",
         "[][] get_weather{\"city\": \"Rome\"}");
  expect(qwen, "<tool_call> is a tag", "[][<tool_call> is a tag]");
  expect_every_start_is_sound(qwen,
                              "a<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</"
                              "parameter>\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>");
}

TEST(ToolCalls, Glm) {
  const Case glm{ToolFormat::glm, ""};
  expect(glm,
         "Let me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome "
         "<b></arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
         "[][Let me see.] get_weather{\"city\": \"Rome <b>\", \"days\": 2} now{}");
  expect(glm, "<tool_call>now</tool_call>", "[][] now{}");
  expect_every_start_is_sound(
      glm, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>R</arg_value>\n</tool_call>");
}

TEST(ToolCalls, Llama) {
  const Case llama{ToolFormat::llama, ""};
  expect(llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
         "[][] get_weather{\"city\": \"Rome\"}");
  expect(llama,
         "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {\"a\": 1}}",
         "[][] now{} now{\"a\": 1}");
  expect(llama, "{\"name\": \"nobody\", \"parameters\": {}}", "[][{\"name\": \"nobody\", \"parameters\": {}}]");
  expect(llama, "{\"answer\": 42}", "[][{\"answer\": 42}]");
  expect(llama, "Plain {text}.", "[][Plain {text}.]");
  expect_every_start_is_sound(llama,
                              "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\", \"n\": [1, 2]}}");
}

TEST(ToolCalls, Mistral) {
  const Case mistral{ToolFormat::mistral, ""};
  expect(mistral,
         "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": \"a1b2c3d4e\"}, "
         "{\"name\": \"now\", \"arguments\": {}}]",
         "[][] get_weather{\"city\": \"Rome\"} now{}");
  expect(mistral, "Ok.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}",
         "[][Ok.] get_weather{\"city\": \"Rome\"} now{}");
  expect(mistral, "[TOOL", "[][[TOOL]");
  expect_every_start_is_sound(mistral, "x[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"b\": [1, {\"c\": \"d\"}]}}]");
  expect_every_start_is_sound(mistral, "x[TOOL_CALLS]a[ARGS]{\"b\": [1, {\"c\": \"d\"}]}");
}

TEST(ToolCalls, WhatNoJsonMayHoldIsMendedInKeysAndValues) {
  expect({ToolFormat::llama, ""},
         "{\"name\": \"now\", \"parameters\": {\"a\x01\\q\\ud800\": \"\x02\\w\\udc00\\ud83c\\udf89\"}}",
         R"([][] now{"a\u0001\\q\ufffd": "\u0002\\w\ufffd\ud83c\udf89"})");
}

TEST(ToolCalls, IdsThatTheModelWrote) {
  const auto parser = make_output_parser(format_of(ToolFormat::mistral), {.tools = kTools});
  const auto deltas = parser->push("[TOOL_CALLS][{\"id\": \"123456789\", \"name\": \"now\", \"arguments\": {}}]");
  ASSERT_FALSE(deltas.empty());
  EXPECT_EQ(deltas[0].kind, ChatDelta::Kind::tool_call);
  EXPECT_EQ(deltas[0].call_id, "123456789");
}

TEST(ToolCalls, TheNameComesBeforeTheArgumentsAreComplete) {
  const auto parser = make_output_parser(format_of(ToolFormat::hermes), {.tools = kTools});
  const auto first = parser->push("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ro");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].text, "get_weather");
  EXPECT_EQ(first[1].text, "{\"city\": \"Ro");
}

}  // namespace
}  // namespace pergola
