#include "server/load_generator.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "server/http_client.h"

namespace pergola {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Made-up words: no two prompts begin alike, so that no cache can help.
std::string random_text(std::int64_t words, std::mt19937_64& random) {
  static constexpr std::string_view kSyllables[] = {"ba", "ke", "lo", "mi", "nu", "ra", "se", "to",
                                                    "vi", "wa", "do", "fe", "gu", "hi", "jo", "pa"};
  std::string text;
  for (std::int64_t i = 0; i < words; ++i) {
    for (auto syllables = 1 + random() % 3; syllables > 0; --syllables) text += kSyllables[random() % 16];
    text += i % 12 == 11 ? ". " : " ";
  }
  return text;
}

/// Takes the events of a stream apart and notes when tokens come.
class StreamClock {
 public:
  StreamClock(LoadSample& sample, Clock::time_point start) : sample_(sample), start_(start), last_(start) {}

  void take(std::string_view piece) {
    pending_ += piece;
    for (std::size_t end; (end = pending_.find("\n\n")) != std::string::npos; pending_.erase(0, end + 2)) {
      const std::string event = pending_.substr(0, end);
      if (event.starts_with("data: ")) read(event.substr(6));
    }
  }

 private:
  void read(const std::string& data) {
    if (data == "[DONE]") {
      sample_.good = sample_.error.empty();
      return;
    }
    const Json event = Json::parse(data, nullptr, false);
    if (event.is_discarded() || event.contains("error")) {
      sample_.error = event.is_discarded() ? "an event that is no JSON" : event["error"].dump();
      return;
    }
    if (event.contains("usage") && event["usage"].is_object()) {
      sample_.prompt_tokens = event["usage"].value("prompt_tokens", std::int64_t{0});
      sample_.answer_tokens = event["usage"].value("completion_tokens", std::int64_t{0});
      if (event["usage"].contains("prompt_tokens_details") && event["usage"]["prompt_tokens_details"].is_object()) {
        sample_.cached_tokens = event["usage"]["prompt_tokens_details"].value("cached_tokens", std::int64_t{0});
      }
    }
    if (!event.contains("choices") || event["choices"].empty() || event["choices"][0].value("text", "").empty()) return;
    const auto now = Clock::now();
    if (sample_.first_token == 0) {
      sample_.first_token = std::chrono::duration<double>(now - start_).count();
    } else {
      sample_.between_tokens.push_back(std::chrono::duration<double>(now - last_).count());
    }
    last_ = now;
  }

  LoadSample& sample_;
  Clock::time_point start_;
  Clock::time_point last_;
  std::string pending_;
};

LoadSample run_one(const HttpClient& client, const LoadOptions& options, const std::string& prompt) {
  LoadSample sample;
  const Json body{
      {"model", options.model}, {"prompt", prompt}, {"max_tokens", options.max_tokens},           {"temperature", 0},
      {"ignore_eos", true},     {"stream", true},   {"stream_options", {{"include_usage", true}}}};
  const auto start = Clock::now();
  try {
    StreamClock clock(sample, start);
    const ClientReply reply = client.post("/v1/completions", body.dump(), options.api_key,
                                          [&clock](std::string_view piece) { clock.take(piece); });
    if (reply.status != 200) sample.error = fmt::format("status {}", reply.status);
    sample.good = sample.good && sample.error.empty();
    if (!sample.good && sample.error.empty()) sample.error = "the stream ended early";
  } catch (const std::exception& error) {
    sample.good = false;
    sample.error = error.what();
  }
  sample.total = seconds_since(start);
  return sample;
}

LoadPhase run_phase(const char* name, const HttpClient& client, const LoadOptions& options,
                    const std::vector<std::string>& prompts, std::mt19937_64& random, const Progress& progress) {
  LoadPhase phase{.name = name, .samples = std::vector<LoadSample>(prompts.size())};
  std::vector<std::jthread> threads;  // joined however this ends
  const auto start = Clock::now();
  std::exponential_distribution<double> pause(options.rate);
  double due = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::this_thread::sleep_until(start +
                                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
    due += pause(random);
    threads.emplace_back([&, i] { phase.samples[i] = run_one(client, options, prompts[i]); });
    if (progress) progress(std::string("sending, ") + name, i + 1, prompts.size());
  }
  threads.clear();
  phase.seconds = seconds_since(start);
  return phase;
}

std::string first_model(const HttpClient& client, const LoadOptions& options) {
  const ClientReply reply = client.get("/v1/models", options.api_key);
  const Json models = Json::parse(reply.body, nullptr, false);
  if (reply.status != 200 || models.is_discarded() || !models.contains("data") || models["data"].empty()) {
    fail({.file = options.url}, "does not list its models (status {})", reply.status);
  }
  return models["data"][0].value("id", "");
}

}  // namespace

std::vector<LoadPhase> run_load(const LoadOptions& options, const Progress& progress) {
  const HttpClient client(options.url);
  LoadOptions complete = options;
  if (complete.model.empty()) complete.model = first_model(client, options);
  std::mt19937_64 random(options.seed);
  std::vector<std::string> prompts;
  for (std::int64_t i = 0; i < options.requests; ++i) prompts.push_back(random_text(options.prompt_words, random));
  std::vector<LoadPhase> phases;
  phases.push_back(run_phase("cold", client, complete, prompts, random, progress));
  phases.push_back(run_phase("cached", client, complete, prompts, random, progress));
  return phases;
}

}  // namespace pergola
