// `pergola serve` and `pergola bench-server` as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/program.h"
#include "support/checkpoint_writer.h"
#include "support/serve_process.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kStory;
using ::testing::Not;
using testing::Outcome;
using testing::pergola;
using testing::ServeProcess;
using testing::TempFolder;
using testing::write_text;
using Json = nlohmann::ordered_json;

std::string completion(std::int64_t max_tokens, bool stream) {
  return Json{{"model", "story"}, {"prompt", "Once upon a time"}, {"max_tokens", max_tokens},
              {"temperature", 0}, {"ignore_eos", true},           {"stream", stream}}
      .dump();
}

/// A stream in a thread of its own; it has begun when this returns.
std::future<ClientReply> start_stream(const ServeProcess& server, std::int64_t max_tokens) {
  auto begun = std::make_shared<std::promise<void>>();
  std::future<void> waits = begun->get_future();
  auto reply = std::async(std::launch::async, [client = server.client(), max_tokens, begun] {
    bool first = true;
    return client.post("/v1/completions", completion(max_tokens, true), "", [&](std::string_view) {
      if (std::exchange(first, false)) begun->set_value();
    });
  });
  if (waits.wait_for(std::chrono::minutes(1)) != std::future_status::ready) throw std::runtime_error("no stream");
  return reply;
}

TEST(Serve, DrainLetsRunningRequestsEndAndTakesNoNewOnes) {
  ServeProcess server(PERGOLA_BINARY, kStory, {"--context", "1024", "--drain-seconds", "100"});
  std::future<ClientReply> reply = start_stream(server, 400);
  server.signal(SIGTERM);
  bool refused = false;
  for (int i = 0; i < 500 && !refused; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    try {
      server.client().get("/health", "");
    } catch (const Error&) {
      refused = true;
    }
  }
  EXPECT_TRUE(refused) << "it still takes connections";
  EXPECT_THAT(reply.get().body, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(server.wait(), 0) << server.said();
}

TEST(Serve, WhatDoesNotEndInTimeIsToldSo) {
  ServeProcess server(PERGOLA_BINARY, kStory, {"--context", "8192", "--drain-seconds", "0"});
  std::future<ClientReply> reply = start_stream(server, 8000);
  server.signal(SIGTERM);
  EXPECT_THAT(reply.get().body, HasSubstr("the server stops"));
  EXPECT_EQ(server.wait(), 0) << server.said();
}

TEST(Serve, KeysFromFileAndEnvironmentGuardEveryRouteButHealth) {
  const TempFolder folder;
  write_text(folder / "keys", "alpha key\r\n\nbravo \n");
  ::setenv("PERGOLA_API_KEY", "charlie", 1);
  ServeProcess server(PERGOLA_BINARY, kStory, {"--api-key-file", folder / "keys", "--context", "256"});
  ::unsetenv("PERGOLA_API_KEY");
  const HttpClient client = server.client();
  EXPECT_EQ(client.get("/health", "").status, 200);
  for (const char* path : {"/metrics", "/v1/models", "/v1/models/story", "/nothing"}) {
    EXPECT_EQ(client.get(path, "").status, 401) << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
                           "/v1/messages/count_tokens", "/tokenize", "/detokenize"}) {
    EXPECT_EQ(client.post(path, "{}", "").status, 401) << path;
    EXPECT_EQ(client.post(path, "{}", "wrong").status, 401) << path;
    EXPECT_EQ(client.post(path, "{}", "charlie").status, 400) << path;
  }
  for (const char* key : {"alpha key", "bravo", "charlie"}) EXPECT_EQ(client.get("/v1/models", key).status, 200) << key;
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_THAT(server.said(), AllOf(Not(HasSubstr("charlie")), Not(HasSubstr("bravo")))) << "keys are not logged";
}

TEST(Serve, EmptyKeysAreRefused) {
  const TempFolder folder;
  write_text(folder / "keys", "\n  \n");
  const auto refused = [](const std::vector<std::string>& more) {
    std::vector<std::string> all{"serve", kStory, "--port", "0"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = pergola(all);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused({"--api-key-file", folder / "keys", "--api-key", "other"}), HasSubstr("has no key"));
  EXPECT_THAT(refused({"--api-key", ""}), HasSubstr("--api-key: is empty"));
  ::setenv("PERGOLA_API_KEY", "", 1);
  const std::string from_environment = refused({});
  ::unsetenv("PERGOLA_API_KEY");
  EXPECT_THAT(from_environment, HasSubstr("PERGOLA_API_KEY is empty"));
}

TEST(Serve, BadTemplateIsSaidAndChatsAreRefused) {
  const TempFolder folder;
  std::filesystem::copy(kStory, folder / "model");
  write_text(folder / "model/chat_template.jinja", "{% for m in messages %}");
  {
    ServeProcess server(PERGOLA_BINARY, folder / "model", {"--context", "256"});
    EXPECT_THAT(server.said(), AllOf(HasSubstr("chats will be refused"), HasSubstr("chat_template.jinja")));
    const Json chat{{"model", "model"}, {"messages", {{{"role", "user"}, {"content", "Hello."}}}}};
    const ClientReply reply = server.client().post("/v1/chat/completions", chat.dump(), "");
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, HasSubstr("no chat template"));
  }
  write_text(folder / "model/chat_template.jinja",
             "{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}");
  ServeProcess server(PERGOLA_BINARY, folder / "model", {"--context", "256"});
  const Json chat{{"model", "model"}, {"messages", {{{"role", "user"}, {"content", "Hello."}}}}};
  EXPECT_EQ(server.client().post("/v1/chat/completions", chat.dump(), "").status, 400);
  EXPECT_EQ(server.client().get("/health", "").status, 200);
}

TEST(BenchServer, ReportsColdAndCachedApartAndPlots) {
  const TempFolder folder;
  ServeProcess server(PERGOLA_BINARY, kStory, {"--context", "1024"});
  const Outcome outcome = pergola({"bench-server", server.url(), "--rate", "50", "--requests", "4", "--prompt-words",
                                   "200", "--max-tokens", "6", "--json", "--plot", folder / "plot.svg"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = Json::parse(outcome.out);
  ASSERT_EQ(report["phases"].size(), 2u);
  for (const Json& phase : report["phases"]) {
    EXPECT_EQ(phase["answers"], 4);
    EXPECT_EQ(phase["failed"], 0);
    EXPECT_GT(phase["prompt_tokens"], 4 * 256);
    EXPECT_GT(phase["answer_tokens_per_second"], 0);
    for (const char* what : {"first_token_seconds", "between_tokens_seconds", "total_seconds"}) {
      EXPECT_GT(phase[what]["p50"], 0) << what;
      EXPECT_LE(phase[what]["p50"], phase[what]["p99"]) << what;
    }
  }
  EXPECT_EQ(report["phases"][0]["phase"], "cold");
  EXPECT_EQ(report["phases"][0]["cached_tokens"], 0);
  EXPECT_EQ(report["phases"][1]["phase"], "cached");
  EXPECT_GE(report["phases"][1]["cached_tokens"], 4 * 256);
  std::ifstream file(folder / "plot.svg");
  const std::string plot{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(plot,
              AllOf(HasSubstr("<svg"), HasSubstr(">cold</text>"), HasSubstr(">cached</text>"), Not(HasSubstr("nan"))));
  const Outcome table = pergola({"bench-server", server.url(), "--requests", "1", "--max-tokens", "2"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("time to first token"), HasSubstr("cached: 1 answers, 0 failed")));
}

TEST(BenchServer, SaysWhatIsWrong) {
  const Outcome nobody = pergola({"bench-server", "http://127.0.0.1:1"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("cannot connect"));
  const Outcome scheme = pergola({"bench-server", "ftp://x"});
  EXPECT_EQ(scheme.code, 1);
  EXPECT_THAT(scheme.err, HasSubstr("must start with http://"));
  ServeProcess server(PERGOLA_BINARY, kStory, {"--context", "256"});
  const Outcome model = pergola({"bench-server", server.url(), "--model", "other", "--requests", "2"});
  EXPECT_EQ(model.code, 1);
  EXPECT_THAT(model.out, AllOf(HasSubstr("0 answers, 2 failed"), HasSubstr("status 404")));
}

}  // namespace
}  // namespace pergola
