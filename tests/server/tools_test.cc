// Tools and formats of answers: the bundled model knows nothing of either, so its answers are forced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/running_server.h"

namespace pergola {
namespace {

using testing::HandlerReply;
using ::testing::HasSubstr;
using testing::shared_server;
using Json = nlohmann::ordered_json;

const Json kSchema = Json::parse(R"({"type": "object",
  "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
  "required": ["city", "days"], "additionalProperties": false})");

/// A chat with room for a whole call.
Json chat(const Json& more) {
  Json body = testing::chat_body({{"max_tokens", 150}});
  body.update(more);
  return body;
}

Json forced() {
  const Json tool{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", kSchema}}}};
  return {{"tools", Json::array({tool})}, {"tool_choice", "required"}, {"parallel_tool_calls", false}};
}

void expect_weather(const std::string& text) {
  const Json arguments = Json::parse(text);
  EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << text;
  EXPECT_GE(arguments["days"], 1);
  EXPECT_LE(arguments["days"], 9);
  EXPECT_EQ(arguments.size(), 2u);
}

TEST(Tools, ForcedCallComesWithItsArguments) {
  const Json body = shared_server().post("/v1/chat/completions", chat(forced())).json();
  const Json& choice = body["choices"][0];
  ASSERT_EQ(choice["finish_reason"], "tool_calls") << body;
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const Json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "weather");
  EXPECT_THAT(call["id"].get<std::string>(), ::testing::StartsWith("call_"));
  EXPECT_TRUE(choice["message"]["content"].is_null());
  expect_weather(call["function"]["arguments"]);
}

TEST(Tools, StreamSaysTheSame) {
  Json request = chat(forced());
  const Json whole = shared_server().post("/v1/chat/completions", request).json();
  request["stream"] = true;
  std::string name;
  std::string arguments;
  std::string content;
  for (const Json& event : shared_server().post("/v1/chat/completions", request).events()) {
    const Json& delta = event["choices"][0]["delta"];
    content += delta.value("content", "");
    if (!delta.contains("tool_calls")) continue;
    for (const Json& call : delta["tool_calls"]) {
      EXPECT_EQ(call["index"], 0);
      EXPECT_EQ(call.contains("id"), name.empty());
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(content, "");
  EXPECT_EQ(arguments, whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>());
}

TEST(Tools, AnthropicsWords) {
  const Json request = testing::message_body(
      {{"max_tokens", 150},
       {"tools", Json::array({{{"name", "weather"}, {"input_schema", kSchema}}})},
       {"tool_choice", {{"type", "tool"}, {"name", "weather"}, {"disable_parallel_tool_use", true}}}});
  const Json body = shared_server().post("/v1/messages", request).json();
  ASSERT_EQ(body["stop_reason"], "tool_use") << body;
  EXPECT_EQ(body["content"][0]["type"], "tool_use");
  expect_weather(body["content"][0]["input"].dump());
}

TEST(Tools, ResultsComeBackIntoTheConversation) {
  const Json call{{"id", "call_1"},
                  {"type", "function"},
                  {"function", {{"name", "weather"}, {"arguments", R"({"city": "Oslo", "days": 1})"}}}};
  Json request = chat(forced());
  request["tool_choice"] = "auto";
  request["max_tokens"] = 4;
  request["messages"].push_back({{"role", "assistant"}, {"tool_calls", Json::array({call})}});
  request["messages"].push_back({{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "Rain."}});
  const HandlerReply reply = shared_server().post("/v1/chat/completions", request);
  EXPECT_EQ(reply.head.status, 200) << reply.body;
}

TEST(Tools, ResponsesWords) {
  const Json tool{{"type", "function"}, {"name", "weather"}, {"parameters", kSchema}, {"strict", true}};
  const Json body = shared_server()
                        .post("/v1/responses", {{"model", "story"},
                                                {"input", "Hello."},
                                                {"tools", Json::array({tool})},
                                                {"tool_choice", "required"},
                                                {"parallel_tool_calls", false},
                                                {"temperature", 0}})
                        .json();
  ASSERT_EQ(body["output"].size(), 1u) << body;
  EXPECT_EQ(body["output"][0]["type"], "function_call");
  expect_weather(body["output"][0]["arguments"]);
}

TEST(ResponseFormat, SchemaHoldsAtAnyTemperature) {
  for (int seed = 0; seed < 5; ++seed) {
    const Json format{{"type", "json_schema"}, {"json_schema", {{"name", "weather"}, {"schema", kSchema}}}};
    const Json body =
        shared_server()
            .post("/v1/chat/completions", chat({{"response_format", format}, {"temperature", 1.5}, {"seed", seed}}))
            .json();
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop") << body;
    expect_weather(body["choices"][0]["message"]["content"]);
  }
}

TEST(ResponseFormat, RegexAndPlainText) {
  const Json format{{"type", "regex"}, {"pattern", "(yes|no)!{3}"}};
  const Json body = shared_server().post("/v1/chat/completions", chat({{"response_format", format}})).json();
  EXPECT_THAT(body["choices"][0]["message"]["content"].get<std::string>(), ::testing::AnyOf("yes!!!", "no!!!"));
  const Json text =
      shared_server().post("/v1/chat/completions", chat({{"response_format", {{"type", "text"}}}})).json();
  EXPECT_EQ(text["choices"], shared_server().post("/v1/chat/completions", chat(Json::object())).json()["choices"]);
}

TEST(ResponseFormat, WhatIsNotSupportedIsNamed) {
  const auto refused = [](const Json& more) {
    const HandlerReply reply = shared_server().post("/v1/chat/completions", chat(more));
    EXPECT_EQ(reply.head.status, 400) << more;
    return reply.body;
  };
  const Json strange{{"type", "object"}, {"no_such_keyword", 1}};
  EXPECT_THAT(refused({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", strange}}}}}}),
              HasSubstr("no_such_keyword"));
  EXPECT_THAT(refused({{"response_format", {{"type", "poem"}}}}), HasSubstr("response_format.type must be"));
  EXPECT_THAT(refused({{"tool_choice", "required"}}), HasSubstr("tool_choice needs tools"));
  Json unknown = forced();
  unknown["tool_choice"] = {{"type", "function"}, {"function", {{"name", "other"}}}};
  EXPECT_THAT(refused(unknown), HasSubstr("other"));
}

}  // namespace
}  // namespace pergola
