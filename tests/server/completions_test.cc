#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "support/running_server.h"

namespace pergola {
namespace {

using testing::chat_body;
using testing::completion_body;
using testing::HandlerReply;
using ::testing::HasSubstr;
using testing::ReplyWaiter;
using testing::RunningServer;
using testing::shared_server;
using Json = nlohmann::ordered_json;

/// The texts of a stream's chunks put together, by choice.
std::map<int, std::string> streamed_text(const HandlerReply& reply) {
  std::map<int, std::string> texts;
  for (const Json& event : reply.events()) {
    for (const Json& choice : event["choices"]) {
      const std::string piece =
          choice.contains("text") ? choice["text"].get<std::string>() : choice["delta"].value("content", "");
      texts[choice["index"].get<int>()] += piece;
    }
  }
  return texts;
}

TEST(Completions, AnswersWithTextAndUsage) {
  const HandlerReply reply = shared_server().post("/v1/completions", completion_body());
  ASSERT_EQ(reply.head.status, 200) << reply.body;
  const Json body = reply.json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "story");
  EXPECT_FALSE(body["choices"][0]["text"].get<std::string>().empty());
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  EXPECT_EQ(body["usage"]["prompt_tokens"], shared_server().tokenizer().encode("Once upon a time", true).size());
}

TEST(Completions, StreamSaysTheSame) {
  const Json whole = shared_server().post("/v1/completions", completion_body()).json();
  const HandlerReply stream = shared_server().post(
      "/v1/completions", completion_body({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_TRUE(stream.streamed);
  EXPECT_EQ(stream.head.content_type, "text/event-stream");
  EXPECT_EQ(streamed_text(stream)[0], whole["choices"][0]["text"].get<std::string>());
  EXPECT_THAT(stream.body, ::testing::EndsWith("data: [DONE]\n\n"));
  const std::vector<Json> events = stream.events();
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST(Completions, ManyPromptsAndManyAnswers) {
  const Json body =
      shared_server()
          .post("/v1/completions", completion_body({{"prompt", {"The cat", "The dog"}}, {"n", 2}, {"echo", true}}))
          .json();
  ASSERT_EQ(body["choices"].size(), 4u) << body;
  EXPECT_THAT(body["choices"][1]["text"].get<std::string>(), ::testing::StartsWith("The cat"));
  EXPECT_THAT(body["choices"][2]["text"].get<std::string>(), ::testing::StartsWith("The dog"));
  EXPECT_EQ(body["choices"][0]["text"], body["choices"][1]["text"]);  // greedy
}

TEST(Completions, SeedDecidesAndAnswersDiffer) {
  const Json request = completion_body({{"temperature", 1.5}, {"seed", 7}, {"n", 2}});
  const Json a = shared_server().post("/v1/completions", request).json();
  const Json b = shared_server().post("/v1/completions", request).json();
  EXPECT_EQ(a["choices"], b["choices"]);
  EXPECT_NE(a["choices"][0]["text"], a["choices"][1]["text"]);
}

TEST(Completions, TokensAreAPromptToo) {
  const auto tokens = shared_server().tokenizer().encode("Once upon a time", true);
  const Json a = shared_server().post("/v1/completions", completion_body({{"prompt", tokens}})).json();
  EXPECT_EQ(a["choices"], shared_server().post("/v1/completions", completion_body()).json()["choices"]);
}

TEST(Completions, StopStringEndsTheTextBeforeIt) {
  const std::string text = shared_server().post("/v1/completions", completion_body()).json()["choices"][0]["text"];
  const std::string stop = text.substr(text.size() / 2, 3);
  const Json body = shared_server().post("/v1/completions", completion_body({{"stop", {stop, "\u0001"}}})).json();
  EXPECT_EQ(body["choices"][0]["text"].get<std::string>(), text.substr(0, text.find(stop)));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_LT(body["usage"]["completion_tokens"], 12);
}

TEST(Completions, LogprobsGoWithTheTokens) {
  const Json body = shared_server().post("/v1/completions", completion_body({{"logprobs", 3}})).json();
  const Json& logprobs = body["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 12u) << body;
  std::string text;
  for (std::size_t i = 0; i < 12; ++i) {
    const std::string token = logprobs["tokens"][i];
    EXPECT_EQ(logprobs["text_offset"][i], text.size());
    text += token;
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 3u);
    EXPECT_EQ(logprobs["top_logprobs"][i][token], logprobs["token_logprobs"][i]);
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
  }
  EXPECT_EQ(text, body["choices"][0]["text"].get<std::string>());
}

TEST(Completions, LogitBiasDecides) {
  const std::int32_t token = shared_server().tokenizer().encode(" sea", false)[0];
  const Json body =
      shared_server().post("/v1/completions", completion_body({{"logit_bias", {{std::to_string(token), 100}}}})).json();
  const std::string word = shared_server().tokenizer().decode({&token, 1}, false);
  EXPECT_THAT(body["choices"][0]["text"].get<std::string>(), HasSubstr(word + word + word));
}

TEST(ChatCompletions, AnswersAndStreams) {
  const Json body = shared_server().post("/v1/chat/completions", chat_body()).json();
  EXPECT_EQ(body["object"], "chat.completion") << body;
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  const std::string text = body["choices"][0]["message"]["content"];
  EXPECT_FALSE(text.empty());
  const HandlerReply stream = shared_server().post("/v1/chat/completions", chat_body({{"stream", true}}));
  EXPECT_EQ(streamed_text(stream)[0], text);
  EXPECT_EQ(stream.events()[0]["choices"][0]["delta"]["role"], "assistant");
}

TEST(ChatCompletions, ContentMayBePartsAndLogprobsHaveBytes) {
  const Json parts = {
      {{"role", "user"},
       {"content", {{{"type", "text"}, {"text", "Tell me "}}, {{"type", "text"}, {"text", "about the sea."}}}}}};
  const Json body =
      shared_server()
          .post("/v1/chat/completions", chat_body({{"messages", parts}, {"logprobs", true}, {"top_logprobs", 2}}))
          .json();
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"],
            shared_server().post("/v1/chat/completions", chat_body()).json()["choices"][0]["message"]);
  ASSERT_EQ(choice["logprobs"]["content"].size(), 12u);
  const Json& first = choice["logprobs"]["content"][0];
  EXPECT_EQ(first["bytes"].size(), first["token"].get<std::string>().size());
  EXPECT_EQ(first["top_logprobs"].size(), 2u);
}

TEST(ChatCompletions, LongSharedBeginningIsTakenFromTheCache) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "The sea was grey and the wind blew from the west. ";
  const Json messages = {{{"role", "user"}, {"content", text}}};
  const Json cold = shared_server().post("/v1/chat/completions", chat_body({{"messages", messages}})).json();
  const Json warm = shared_server().post("/v1/chat/completions", chat_body({{"messages", messages}})).json();
  EXPECT_EQ(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0) << cold;
  EXPECT_GE(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 512);
  EXPECT_EQ(cold["choices"], warm["choices"]);
}

TEST(Server, AClientThatLeavesFreesEverything) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    for (const bool stream : {true, false}) {
      ReplyWaiter waiter;
      Json body = path[4] == 'c' && path[5] == 'o' ? completion_body() : chat_body();
      body.erase("max_tokens");
      body["max_tokens"] = 1500;
      body["stream"] = stream;
      body["ignore_eos"] = true;
      shared_server().router().handle(
          {.method = "POST", .path = path, .headers = {{"content-type", "application/json"}}, .body = body.dump()},
          waiter.exchange());
      if (stream) waiter.wait_for_bytes(500);
      waiter.exchange()->abort();
      waiter.wait();
    }
  }
  for (int i = 0; i < 200 && shared_server().loop().stats().running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const SchedulerStats stats = shared_server().loop().stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.slots_in_use, 0);
  EXPECT_EQ(stats.pages_in_use, stats.pages_cached);
}

TEST(Completions, AnswersToOnePromptComputeItOnce) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "A ship came over the sea, and nobody knew its flag. ";
  const SchedulerStats before = shared_server().loop().stats();
  const Json body = shared_server().post("/v1/completions", completion_body({{"prompt", text}, {"n", 4}})).json();
  const SchedulerStats after = shared_server().loop().stats();
  const std::uint64_t tokens = body["usage"]["prompt_tokens"];
  ASSERT_GT(tokens, 600u) << body;
  const std::uint64_t last_page = (tokens - 1) % 256 + 1;
  EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, tokens + 3 * last_page);
  for (const Json& choice : body["choices"]) EXPECT_EQ(choice["text"], body["choices"][0]["text"]);
}

TEST(Completions, LogprobsOfAReplyAsAWholeAreBounded) {
  Json body = completion_body({{"logprobs", 20}, {"n", 32}});
  body["max_tokens"] = 2000;
  const HandlerReply reply = shared_server().post("/v1/completions", body);
  EXPECT_EQ(reply.head.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("logprobs would have up to 1344000 values in one reply"));
}

TEST(Server, HealthTellsLoadingFromReadyAndStuck) {
  const Router loading(AccessRules({}, true));
  ReplyWaiter waiter;
  loading.handle({.method = "GET", .path = "/health"}, waiter.exchange());
  const HandlerReply not_yet = waiter.wait();
  EXPECT_EQ(not_yet.head.status, 503);
  EXPECT_THAT(not_yet.body, HasSubstr("the model is being loaded"));
  ReplyWaiter other;
  loading.handle({.method = "GET", .path = "/v1/models"}, other.exchange());
  EXPECT_EQ(other.wait().head.status, 503);

  /// Holds the engine's thread until it is let go.
  struct Holder final : RequestListener {
    bool on_token(const SampledToken&) override {
      held.set_value();
      go_on.get_future().wait();
      return false;
    }
    void on_end(const RequestOutcome&) override { ended.set_value(); }
    std::promise<void> held;
    std::promise<void> go_on;
    std::promise<void> ended;
  };
  RunningServer stuck({.stall_seconds = 0.2});
  EXPECT_EQ(stuck.get("/health").head.status, 200);
  const auto holder = std::make_shared<Holder>();
  ServedRequest request;
  request.generation.prompt = {5, 6, 7};
  request.listener = holder;
  std::vector<ServedRequest> requests;
  requests.push_back(std::move(request));
  ASSERT_EQ(stuck.loop().submit(std::move(requests)).size(), 1u);
  holder->held.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const HandlerReply says = stuck.get("/health");
  EXPECT_EQ(says.head.status, 503);
  EXPECT_THAT(says.body, HasSubstr("no step was finished"));
  holder->go_on.set_value();
  holder->ended.get_future().wait();
  // A listener hears of the end shortly before its step counts as finished.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (stuck.get("/health").head.status != 200 && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(stuck.get("/health").head.status, 200);
  stuck.loop().stop(std::chrono::seconds(0));
  const HandlerReply stopped = stuck.post("/v1/completions", completion_body());
  EXPECT_EQ(stopped.head.status, 503);
  EXPECT_THAT(stopped.body, HasSubstr("the server is stopping"));
}

TEST(Server, HealthAndModels) {
  EXPECT_EQ(shared_server().get("/health").head.status, 200);
  const Json models = shared_server().get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["id"], "story");
  EXPECT_EQ(shared_server().get("/v1/models/story").json()["id"], "story");
  EXPECT_EQ(shared_server().get("/v1/models/other").head.status, 404);
  EXPECT_EQ(shared_server().get("/nothing").head.status, 404);
  EXPECT_EQ(shared_server().get("/v1/completions").head.status, 405);
}

struct BadRequest {
  std::string path;
  std::string body;
  int status;
  std::string says;
};

TEST(Server, BadRequestsAreRefusedInOneSentence) {
  const auto with = [](Json base, const char* name, Json value) {
    base[name] = std::move(value);
    return base.dump();
  };
  const std::string completions = "/v1/completions";
  const std::string chats = "/v1/chat/completions";
  const Json text = completion_body();
  const Json talk = chat_body();
  const std::vector<BadRequest> cases{
      {completions, "", 400, "not valid JSON"},
      {completions, "[]", 400, "must be an object"},
      {completions, "{\"model\": \"story\", \"prompt\": \"\xff\"}", 400, "not valid JSON"},
      {completions, std::string(100, '[') + std::string(100, ']'), 400, "nested deeper"},
      {completions, "{}", 400, "model is missing"},
      {completions, with(text, "model", "gpt-4"), 404, "there is no model 'gpt-4'"},
      {completions, with(text, "model", 3), 400, "model must be a string"},
      {completions, with(text, "prompt", nullptr), 400, "prompt is missing"},
      {completions, with(text, "prompt", 3), 400, "prompt must be"},
      {completions, with(text, "prompt", Json::array()), 400, "prompt must have"},
      {completions, with(text, "prompt", {1, -2}), 400, "prompt has -2"},
      {completions, with(text, "prompt", {1, 1.5}), 400, "prompt has 1.5"},
      {completions, with(text, "prompt", {99999}), 400, "outside the model's vocabulary"},
      {completions, with(text, "prompt", ""), 400, "the prompt is empty"},
      {completions, with(text, "max_tokens", 0), 400, "max_tokens must be from 1"},
      {completions, with(text, "max_tokens", 1e30), 400, "max_tokens must be from 1"},
      {completions, with(text, "max_tokens", "5"), 400, "max_tokens must be an integer"},
      {completions, with(text, "max_tokens", 1.5), 400, "max_tokens must be an integer"},
      {completions, with(text, "temperature", -1), 400, "temperature must be from 0"},
      {completions, with(text, "temperature", "hot"), 400, "temperature must be a number"},
      {completions, with(text, "top_p", 1.1), 400, "top_p must be from 0 to 1"},
      {completions, with(text, "top_k", -5), 400, "top_k must be from"},
      {completions, with(text, "n", 1000), 400, "n must be from 1"},
      {completions, with(text, "seed", 1.5), 400, "seed must be an integer"},
      {completions, with(text, "seed", 1e300), 400, "seed must be from"},
      {completions, with(text, "seed", 9223372036854775808ULL), 400, "seed must be from"},
      {completions, with(text, "seed", 9223372036854775808.0), 400, "seed must be from"},
      {completions, with(text, "stop", 5), 400, "stop must be a string"},
      {completions, with(text, "stop", ""), 400, "stop has an empty string"},
      {completions, with(text, "stop", Json(std::vector<std::string>(100, "a"))), 400, "stop has 100 elements"},
      {completions, with(text, "stop", std::string(5000, 'a')), 400, "stop has a string of 5000 bytes"},
      {completions, with(text, "logprobs", 1000), 400, "logprobs must be from 0"},
      {completions, with(text, "logit_bias", {{"x", 1}}), 400, "logit_bias has 'x'"},
      {completions, with(text, "logit_bias", {{"5", 1000}}), 400, "logit_bias.5 must be from -100"},
      {completions, with(text, "stream", 1), 400, "stream must be a boolean"},
      {completions, with(text, "stream_options", Json::object()), 400, "stream_options is for streams only"},
      {completions, with(text, "best_of", 3), 400, "best_of must be n"},
      {completions, with(text, "suffix", "end"), 400, "suffix is not supported"},
      {completions, with(text, "no_such_thing", 1), 400, "no_such_thing is not known here"},
      {chats, with(talk, "messages", "hello"), 400, "messages must be an array"},
      {chats, with(talk, "messages", Json::array()), 400, "messages is empty"},
      {chats, with(talk, "messages", {1}), 400, "messages[0] must be an object"},
      {chats, with(talk, "messages", {{{"role", "king"}, {"content", "a"}}}), 400, "messages[0].role must be"},
      {chats, with(talk, "messages", {{{"role", "user"}}}), 400, "messages[0].content is missing"},
      {chats, with(talk, "messages", {{{"role", "user"}, {"content", 5}}}), 400, "messages[0].content must be"},
      {chats,
       with(talk, "messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", "http://x"}}}}}}),
       400, "messages[0].content[0].type must be text"},
      {chats, with(talk, "top_logprobs", 2), 400, "top_logprobs needs logprobs"},
      {chats, with(talk, "max_completion_tokens", 99), 400, "max_tokens contradicts"},
  };
  for (const BadRequest& bad : cases) {
    const HandlerReply reply = shared_server().post_text(bad.path, bad.body);
    EXPECT_EQ(reply.head.status, bad.status) << bad.body << " gave " << reply.body;
    EXPECT_THAT(reply.body, HasSubstr(bad.says)) << bad.body;
    EXPECT_TRUE(reply.json()["error"]["message"].is_string());
  }
}

TEST(Server, PromptBeyondTheContextIsRefusedWithTheNumbers) {
  const HandlerReply reply =
      shared_server().post("/v1/completions", completion_body({{"prompt", std::vector<int>(3000, 5)}}));
  EXPECT_EQ(reply.head.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("3000 tokens, more than the context of 2048"));
  EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
}

TEST(Server, BodyMustSayThatItIsJson) {
  const HandlerReply reply = shared_server().send({.method = "POST",
                                                   .path = "/v1/completions",
                                                   .headers = {{"content-type", "text/plain"}},
                                                   .body = completion_body().dump()});
  EXPECT_EQ(reply.head.status, 415);
}

TEST(Server, FullQueueIs429WithRetryAfter) {
  RunningServer small({.max_sequences = 1, .queue = 2});
  const HandlerReply reply = small.post("/v1/completions", completion_body({{"n", 3}}));
  EXPECT_EQ(reply.head.status, 429);
  EXPECT_THAT(reply.head.headers, ::testing::Contains(::testing::Pair("Retry-After", "1")));
  EXPECT_EQ(small.post("/v1/completions", completion_body({{"n", 2}})).head.status, 200);
}

}  // namespace
}  // namespace pergola
