// Every member of every route with values of the wrong kind: always a 400 that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/running_server.h"

namespace pergola {
namespace {

using testing::HandlerReply;
using ::testing::HasSubstr;
using testing::shared_server;
using Json = nlohmann::ordered_json;

enum class Kind : std::uint8_t {
  boolean,
  integer,
  any_integer,
  number,
  text,
  array,
  object,
  text_or_array,
  text_or_object
};

struct Route {
  std::string path;
  Json body;
  std::vector<std::pair<std::string, Kind>> members;
  std::vector<std::string> required;
};

/// Members that several routes share.
const std::vector<std::pair<std::string, Kind>> kSampling{{"temperature", Kind::number},
                                                          {"top_p", Kind::number},
                                                          {"top_k", Kind::integer},
                                                          {"min_p", Kind::number},
                                                          {"repetition_penalty", Kind::number},
                                                          {"frequency_penalty", Kind::number},
                                                          {"presence_penalty", Kind::number},
                                                          {"seed", Kind::any_integer},
                                                          {"logit_bias", Kind::object},
                                                          {"n", Kind::integer},
                                                          {"ignore_eos", Kind::boolean},
                                                          {"model", Kind::text}};

std::vector<Route> routes() {
  std::vector<Route> all{
      {"/v1/completions",
       testing::completion_body(),
       {{"prompt", Kind::text_or_array},
        {"max_tokens", Kind::integer},
        {"logprobs", Kind::integer},
        {"stream", Kind::boolean},
        {"stream_options", Kind::object},
        {"echo", Kind::boolean},
        {"best_of", Kind::integer},
        {"suffix", Kind::text},
        {"stop", Kind::text_or_array}},
       {"model", "prompt"}},
      {"/v1/chat/completions",
       testing::chat_body(),
       {{"messages", Kind::array},
        {"max_tokens", Kind::integer},
        {"max_completion_tokens", Kind::integer},
        {"logprobs", Kind::boolean},
        {"top_logprobs", Kind::integer},
        {"stream", Kind::boolean},
        {"stream_options", Kind::object},
        {"tools", Kind::array},
        {"tool_choice", Kind::text_or_object},
        {"parallel_tool_calls", Kind::boolean},
        {"response_format", Kind::object},
        {"chat_template_kwargs", Kind::object},
        {"reasoning_effort", Kind::text},
        {"stop", Kind::text_or_array}},
       {"model", "messages"}},
      {"/v1/messages",
       testing::message_body(),
       {{"messages", Kind::array},
        {"max_tokens", Kind::integer},
        {"system", Kind::text_or_array},
        {"stop_sequences", Kind::text_or_array},
        {"stream", Kind::boolean},
        {"tools", Kind::array},
        {"tool_choice", Kind::object},
        {"thinking", Kind::object}},
       {"model", "messages", "max_tokens"}},
      {"/v1/responses",
       testing::response_body(),
       {{"input", Kind::text_or_array},
        {"instructions", Kind::text},
        {"max_output_tokens", Kind::integer},
        {"stream", Kind::boolean},
        {"tools", Kind::array},
        {"tool_choice", Kind::text_or_object},
        {"parallel_tool_calls", Kind::boolean},
        {"text", Kind::object},
        {"metadata", Kind::object},
        {"background", Kind::boolean},
        {"truncation", Kind::text}},
       {"model", "input"}},
  };
  for (Route& route : all) route.members.insert(route.members.end(), kSampling.begin(), kSampling.end());
  all.push_back({"/tokenize", {{"prompt", "a"}}, {{"prompt", Kind::text}, {"add_special_tokens", Kind::boolean}}, {}});
  all.push_back({"/detokenize", {{"tokens", {1}}}, {{"tokens", Kind::array}}, {"tokens"}});
  return all;
}

/// Values that a member of this kind must not have.
std::vector<Json> wrong_values(Kind kind) {
  std::vector<Json> values;
  const auto unless = [&](std::initializer_list<Kind> kinds, const Json& value) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) values.push_back(value);
  };
  unless({Kind::boolean}, true);
  unless({Kind::integer, Kind::any_integer, Kind::number}, 3);
  unless({Kind::number}, 1.5);
  unless({Kind::text, Kind::text_or_array, Kind::text_or_object}, "x");
  unless({Kind::array, Kind::text_or_array}, Json::array());
  unless({Kind::object, Kind::text_or_object}, Json::object());
  unless({}, Json::array({Json::array({Json::object({{"a", Json::array()}})})}));
  unless({Kind::any_integer}, -1'000'000'000);
  unless({}, 1e300);
  unless({}, -1e300);
  return values;
}

TEST(BadInput, EveryMemberOfTheWrongKindIsNamed) {
  for (const Route& route : routes()) {
    for (const auto& [name, kind] : route.members) {
      for (const Json& value : wrong_values(kind)) {
        Json body = route.body;
        body[name] = value;
        const HandlerReply reply = shared_server().post(route.path, body);
        EXPECT_EQ(reply.head.status, 400) << route.path << " took " << name << " = " << value << ": " << reply.body;
        EXPECT_THAT(reply.body, HasSubstr(name)) << route.path << " with " << value;
        EXPECT_TRUE(reply.json()["error"]["message"].is_string());
      }
    }
  }
}

TEST(BadInput, MissingAndUnknownMembersAreNamed) {
  for (const Route& route : routes()) {
    for (const std::string& name : route.required) {
      for (const bool null : {false, true}) {
        Json body = route.body;
        body.erase(name);
        if (null) body[name] = nullptr;
        const HandlerReply reply = shared_server().post(route.path, body);
        EXPECT_EQ(reply.head.status, 400) << route.path << " without " << name;
        EXPECT_THAT(reply.body, HasSubstr(name + " is missing")) << route.path;
      }
    }
    Json body = route.body;
    body["no_such_member"] = 1;
    const HandlerReply reply = shared_server().post(route.path, body);
    EXPECT_EQ(reply.head.status, 400) << route.path;
    EXPECT_THAT(reply.body, HasSubstr("no_such_member is not known here"));
  }
}

TEST(BadInput, WhatIsNoJsonObjectIsRefusedEverywhere) {
  for (const Route& route : routes()) {
    for (const std::string& body :
         {std::string(), std::string("{"), std::string("null"), std::string("[{}]"), std::string("\"a\""),
          std::string("{\"model\": \"\xc3\x28\"}"), std::string("\xff\xfe"), std::string("{}\0{}", 5),
          std::string(300, '['), std::string("{\"a\":") + std::string(100, '[') + std::string(100, ']') + "}",
          std::string("{\"model\": 1e99999}")}) {
      const HandlerReply reply = shared_server().post_text(route.path, body);
      EXPECT_EQ(reply.head.status, 400) << route.path << " took " << body << ": " << reply.body;
      EXPECT_TRUE(reply.json()["error"]["message"].is_string());
    }
  }
}

TEST(BadInput, UnknownModelIs404Everywhere) {
  for (const Route& route : routes()) {
    Json body = route.body;
    body["model"] = "other";
    EXPECT_EQ(shared_server().post(route.path, body).head.status, 404) << route.path;
  }
}

TEST(BadInput, PromptsBeyondTheContextAreRefusedWithTheNumbers) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "house ";
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, Json>>{{"/v1/completions", testing::completion_body({{"prompt", text}})},
                                                 {"/v1/chat/completions", testing::chat_body({{"messages", messages}})},
                                                 {"/v1/messages", testing::message_body({{"messages", messages}})},
                                                 {"/v1/responses", testing::response_body({{"input", text}})}}) {
    const HandlerReply reply = shared_server().post(path, body);
    EXPECT_EQ(reply.head.status, 400) << path;
    EXPECT_THAT(reply.body, HasSubstr("more than the context of 2048")) << path;
  }
}

TEST(BadInput, HostileToolsAndSchemasAreRefused) {
  const auto chat = [](const Json& more) {
    return shared_server().post("/v1/chat/completions", testing::chat_body(more));
  };
  const auto tool = [](const Json& function) {
    return Json{{"tools", Json::array({{{"type", "function"}, {"function", function}}})}, {"tool_choice", "required"}};
  };
  EXPECT_EQ(chat({{"tools", {1}}}).head.status, 400);
  EXPECT_EQ(chat({{"tools", {{{"type", "web_search"}}}}}).head.status, 400);
  EXPECT_EQ(chat(tool({{"name", 5}})).head.status, 400);
  EXPECT_EQ(chat(tool({{"name", "a"}, {"parameters", {{"type", "spaceship"}}}})).head.status, 400);
  EXPECT_EQ(chat(tool({{"name", "a"}, {"parameters", {{"$ref", "#/nowhere"}}}})).head.status, 400);
  EXPECT_EQ(chat({{"tools", Json(std::vector<Json>(300, {{"type", "function"}, {"function", {{"name", "a"}}}}))}})
                .head.status,
            400);
  const auto schema = [&](const Json& value) {
    return chat({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", value}}}}}}).head.status;
  };
  EXPECT_EQ(schema({{"type", "string"}, {"pattern", "(a{1000}){1000}"}}), 400);
  EXPECT_EQ(schema({{"type", "string"}, {"pattern", "("}}), 400);
  EXPECT_EQ(schema({{"type", "integer"}, {"minimum", 5}, {"maximum", 1}}), 400);
  EXPECT_EQ(schema({{"type", "array"}, {"minItems", -1}}), 400);
  EXPECT_EQ(chat({{"response_format", {{"type", "regex"}, {"pattern", std::string(100'000, '(')}}}}).head.status, 400);
  Json deep = Json::object();
  for (int i = 0; i < 50; ++i) deep = {{"type", "object"}, {"properties", {{"a", deep}}}, {"required", {"a"}}};
  EXPECT_NE(schema(deep), 500);
}

}  // namespace
}  // namespace pergola
