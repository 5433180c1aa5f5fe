// /v1/messages and /v1/responses, without tools: those are in tools_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/running_server.h"

namespace pergola {
namespace {

using ::testing::ElementsAre;
using testing::HandlerReply;
using ::testing::HasSubstr;
using testing::message_body;
using testing::response_body;
using testing::RunningServer;
using testing::shared_server;
using Json = nlohmann::ordered_json;

std::vector<std::string> types_of(const HandlerReply& reply) {
  std::vector<std::string> types;
  for (const Json& event : reply.events()) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

std::string chat_text() {
  return shared_server().post("/v1/chat/completions", testing::chat_body()).json()["choices"][0]["message"]["content"];
}

TEST(Messages, AnswersAsAChatDoes) {
  const Json body = shared_server().post("/v1/messages", message_body()).json();
  EXPECT_EQ(body["type"], "message") << body;
  EXPECT_EQ(body["role"], "assistant");
  EXPECT_EQ(body["content"][0]["text"].get<std::string>(), chat_text());
  EXPECT_EQ(body["stop_reason"], "max_tokens");
  EXPECT_EQ(body["usage"]["output_tokens"], 12);
}

TEST(Messages, StreamHasTheEventsInOrder) {
  const HandlerReply reply = shared_server().post("/v1/messages", message_body({{"stream", true}}));
  EXPECT_THAT(types_of(reply), ElementsAre("message_start", "content_block_start", "content_block_delta",
                                           "content_block_stop", "message_delta", "message_stop"));
  std::string text;
  for (const Json& event : reply.events()) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, chat_text());
  EXPECT_THAT(reply.body, HasSubstr("event: message_start\ndata: {"));
}

TEST(Messages, SystemBlocksAndStopSequences) {
  const std::string text = chat_text();
  const std::string stop = text.substr(text.size() / 2, 3);
  const Json body = shared_server().post("/v1/messages", message_body({{"stop_sequences", {stop}}})).json();
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], stop);
  const Json with_system =
      shared_server()
          .post("/v1/messages",
                message_body({{"system", {{{"type", "text"}, {"text", "Be brief."}}}},
                              {"messages",
                               {{{"role", "user"}, {"content", "Hello."}},
                                {{"role", "assistant"}, {"content", "Hello!"}},
                                {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Go on."}}}}}}}}))
          .json();
  EXPECT_GT(with_system["usage"]["input_tokens"], 10) << with_system;
}

TEST(Messages, CountsTokens) {
  Json body = message_body();
  body.erase("max_tokens");
  body.erase("temperature");
  const Json counted = shared_server().post("/v1/messages/count_tokens", body).json();
  const Json usage = shared_server().post("/v1/messages", message_body()).json()["usage"];
  EXPECT_EQ(counted["input_tokens"].get<int>(),
            usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
}

TEST(Messages, ErrorsAreInTheirOwnWords) {
  Json body = message_body();
  body.erase("max_tokens");
  const HandlerReply reply = shared_server().post("/v1/messages", body);
  EXPECT_EQ(reply.head.status, 400);
  EXPECT_EQ(reply.json()["type"], "error");
  EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
  EXPECT_THAT(reply.body, HasSubstr("max_tokens is missing"));
  EXPECT_EQ(shared_server().post("/v1/messages", message_body({{"model", "claude"}})).json()["error"]["type"],
            "not_found_error");
  const Json image = {{{"role", "user"}, {"content", {{{"type", "image"}, {"source", Json::object()}}}}}};
  EXPECT_THAT(shared_server().post("/v1/messages", message_body({{"messages", image}})).body,
              HasSubstr("messages[0].content[0].type must be text"));
  EXPECT_THAT(shared_server().post("/v1/messages", message_body({{"n", 2}})).body, HasSubstr("n must be 1"));
}

TEST(Responses, AnswersAsAChatDoes) {
  const Json body = shared_server().post("/v1/responses", response_body()).json();
  EXPECT_EQ(body["object"], "response") << body;
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["content"][0]["text"].get<std::string>(), chat_text());
  EXPECT_EQ(body["usage"]["output_tokens"], 12);
}

TEST(Responses, StreamHasTheEventsInOrderAndNumbered) {
  const HandlerReply reply = shared_server().post("/v1/responses", response_body({{"stream", true}}));
  EXPECT_THAT(types_of(reply),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done", "response.incomplete"));
  const std::vector<Json> events = reply.events();
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"].get<std::string>(), chat_text());
}

TEST(Responses, InputMayBeAConversation) {
  const Json items = {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Hello."}}}}},
                      {{"type", "message"},
                       {"role", "assistant"},
                       {"id", "msg_1"},
                       {"status", "completed"},
                       {"content", {{{"type", "output_text"}, {"text", "Hello!"}, {"annotations", Json::array()}}}}},
                      {{"role", "user"}, {"content", "Go on."}}};
  const HandlerReply reply = shared_server().post(
      "/v1/responses", response_body({{"input", items}, {"instructions", "Be brief."}, {"store", false}}));
  EXPECT_EQ(reply.head.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["instructions"], "Be brief.");
}

TEST(Responses, WhatNeedsAStoreIsRefused) {
  EXPECT_THAT(shared_server().post("/v1/responses", response_body({{"previous_response_id", "resp_1"}})).body,
              HasSubstr("stores nothing"));
  EXPECT_THAT(shared_server().post("/v1/responses", response_body({{"background", true}})).body,
              HasSubstr("stores nothing"));
  EXPECT_THAT(shared_server().post("/v1/responses", response_body({{"tools", {{{"type", "web_search"}}}}})).body,
              HasSubstr("this server runs no tools"));
}

TEST(Tokenize, ThereAndBack) {
  const Json tokens = shared_server().post("/tokenize", {{"prompt", "Once upon a time"}}).json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(shared_server().post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["prompt"], "Once upon a time");
  EXPECT_EQ(shared_server().post("/detokenize", {{"tokens", {-1}}}).head.status, 400);
  EXPECT_EQ(shared_server().post("/tokenize", Json::object()).head.status, 400);
  EXPECT_GT(shared_server().post("/tokenize", {{"messages", message_body()["messages"]}}).json()["count"], 8);
}

TEST(Metrics, AreInTheTextFormat) {
  shared_server().post("/v1/messages", message_body());
  const HandlerReply reply = shared_server().get("/metrics");
  EXPECT_THAT(reply.body, HasSubstr("# TYPE pergola_answer_tokens_total counter\npergola_answer_tokens_total "));
  EXPECT_THAT(reply.body, HasSubstr("pergola_time_to_first_token_seconds_bucket{le=\"+Inf\"} "));
  EXPECT_THAT(reply.body, HasSubstr("pergola_http_requests_total{status=\"200\"} "));
}

TEST(Keys, GuardEveryRouteButHealth) {
  RunningServer guarded({.keys = {"secret"}});
  EXPECT_EQ(guarded.get("/health").head.status, 200);
  for (const char* path : {"/v1/models", "/v1/models/story", "/metrics", "/nothing"}) {
    EXPECT_EQ(guarded.get(path).head.status, 401) << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
                           "/v1/messages/count_tokens", "/tokenize", "/detokenize"}) {
    EXPECT_EQ(guarded.post(path, Json::object()).head.status, 401) << path;
  }
  const HandlerReply open =
      guarded.send({.method = "GET", .path = "/v1/models", .headers = {{"authorization", "Bearer secret"}}});
  EXPECT_EQ(open.head.status, 200);
}

}  // namespace
}  // namespace pergola
