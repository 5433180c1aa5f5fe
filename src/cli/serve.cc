#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "engine/engine_loop.h"
#include "format/generation_config.h"
#include "server/http_server.h"
#include "server/model_service.h"
#include "server/router.h"
#include "text/tokenizer.h"

namespace pergola {
namespace {

/// Settings for a kind of machine.
struct Profile {
  const char* name;
  const char* machine;
  std::int64_t context;
  std::int64_t max_sequences;
  std::int64_t max_rows;
  std::int64_t checkpoints;
  const char* kv_cache_bytes;  ///< empty: the whole context of every sequence
};

constexpr std::array kProfiles{
    Profile{"handheld", "little memory that a GPU shares, one person", 4096, 1, 512, 4, "512M"},
    Profile{"desktop", "a card of its own, a few people", 16384, 4, 2048, 16, ""},
};

struct Arguments {
  ModelArguments model;
  HttpOptions http;
  SchedulerOptions scheduler;
  RequestLimits limits;
  std::string served_name;
  std::string profile;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::int64_t context = 0;
  std::int64_t max_sequences = 16;
  std::int64_t checkpoints = 32;
  std::int64_t queue = 256;
  std::int64_t drain_seconds = 30;
  bool no_prefix_cache = false;
};

/// The keys in a file: one a line, without white space around it.
std::vector<std::string> keys_in(const std::string& path) {
  constexpr const char* kWhite = " \t\r";
  std::vector<std::string> keys;
  const std::string text = read_text_file(path);
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    line.erase(0, line.find_first_not_of(kWhite));
    line.erase(line.find_last_not_of(kWhite) + 1);
    if (!line.empty()) keys.push_back(std::move(line));
    start = end + 1;
  }
  if (keys.empty()) fail({.file = path}, "has no key: one a line is expected");
  return keys;
}

/// Keys of the command line, of the file and of the environment. An empty one is an error: whoever gives it believes
/// that the server is guarded.
std::vector<std::string> all_keys(const Arguments& arguments) {
  std::vector<std::string> keys = arguments.api_keys;
  if (std::ranges::count(keys, "") > 0) fail({.field = "--api-key"}, "is empty");
  if (const char* key = std::getenv("PERGOLA_API_KEY")) {
    if (*key == '\0') fail({}, "the variable PERGOLA_API_KEY is empty; unset it to serve without a key");
    keys.emplace_back(key);
  }
  if (!arguments.api_key_file.empty()) {
    const std::vector<std::string> more = keys_in(arguments.api_key_file);
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

std::unique_ptr<Engine> load(const Arguments& arguments) {
  EngineOptions options = engine_options(arguments.model);
  if (arguments.max_sequences > options.device.max_rows) {
    fail({.field = "--max-sequences"}, "must be at most --max-rows ({}), is {}", options.device.max_rows,
         arguments.max_sequences);
  }
  options.memory.context = arguments.context;
  options.memory.max_sequences = arguments.max_sequences;
  options.memory.logit_rows = arguments.max_sequences;
  options.memory.checkpoints = arguments.no_prefix_cache ? 0 : arguments.checkpoints;
  return load_engine(arguments.model.folder, options);
}

std::string name_of(const Arguments& arguments) {
  if (!arguments.served_name.empty()) return arguments.served_name;
  const std::filesystem::path folder = std::filesystem::canonical(arguments.model.folder);
  return folder.filename().string();
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void wait_for_interrupt() {
  while (!interrupt_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

/// How the model is talked to; nothing, and a note, where its folder does not say.
std::optional<ChatTemplate> load_chat(const std::string& folder, const Tokenizer& tokenizer) {
  try {
    ChatTemplate chat = ChatTemplate::load(folder, tokenizer);
    message("chat template: {}", chat.origin());
    return chat;
  } catch (const Error& error) {
    message("note: chats will be refused: {}", error.what());
    return std::nullopt;
  }
}

int act(const Arguments& arguments) {
  const std::vector<std::string> keys = all_keys(arguments);
  const bool local = is_loopback(arguments.http.host);
  Router router(AccessRules(keys, local));
  // It listens before the model is there, so that whoever watches /health can tell loading from dead.
  HttpServer server(arguments.http, [&router](const HttpRequest& request, const std::shared_ptr<Exchange>& to) {
    router.handle(request, to);
  });
  const std::string url = fmt::format("{}://{}:{}", arguments.http.certificate.empty() ? "http" : "https",
                                      arguments.http.host, server.port());
  if (keys.empty() && !local) message("note: no API key is set, and {} can be reached from other machines", url);

  const std::unique_ptr<Engine> engine = load(arguments);
  SchedulerOptions scheduler = arguments.scheduler;
  scheduler.prefix_cache = !arguments.no_prefix_cache;
  EngineLoop loop(*engine, scheduler, arguments.queue);
  const Tokenizer tokenizer = Tokenizer::load(arguments.model.folder);
  const ModelFacts facts{engine->info().vocab_size, engine->memory().context, engine->info().max_positions};
  const ModelService service(facts, loop, tokenizer, load_chat(arguments.model.folder, tokenizer),
                             load_generation_config(arguments.model.folder, engine->checkpoint().config()),
                             name_of(arguments), arguments.limits);
  router.set_ready(service);
  message("serving '{}' on {} (Ctrl-C stops)", service.name(), url);
  wait_for_interrupt();

  message("stopping: {} seconds for requests that run", arguments.drain_seconds);
  server.stop_accepting();
  loop.stop(std::chrono::seconds(arguments.drain_seconds));
  // Last words are on their way; who does not take them misses them.
  for (int i = 0; i < 200 && server.answering() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(25));
  router.set_stopped();
  return 0;
}

void add_network_options(CLI::App& command, Arguments& arguments) {
  constexpr const char* kGroup = "Network";
  command.add_option("--host", arguments.http.host, "Address to listen on; 0.0.0.0: every one of this machine")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--port", arguments.http.port, "Port; 0: one that is free")->capture_default_str()->group(kGroup);
  command
      .add_option("--api-key", arguments.api_keys,
                  "Key that every request but /health must bring; may be repeated (other users of this machine can see "
                  "it: prefer --api-key-file or the variable PERGOLA_API_KEY)")
      ->allow_extra_args(false)
      ->group(kGroup);
  command.add_option("--api-key-file", arguments.api_key_file, "File with keys, one a line")->group(kGroup);
  command.add_option("--tls-cert", arguments.http.certificate, "PEM file with the certificate chain: serve HTTPS")
      ->group(kGroup);
  command.add_option("--tls-key", arguments.http.private_key, "PEM file with its private key")->group(kGroup);
  command.add_option("--max-connections", arguments.http.max_connections, "Connections at a time")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--max-body-bytes", arguments.http.max_body_bytes, "Largest body of a request")
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 30))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--drain-seconds", arguments.drain_seconds, "Time for running requests when the server stops")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str()
      ->group(kGroup);
}

void add_scheduling_options(CLI::App& command, Arguments& arguments) {
  constexpr const char* kGroup = "Scheduling";
  command.add_option("--max-sequences", arguments.max_sequences, "Requests that are computed at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--queue", arguments.queue, "Requests that may wait; more get status 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option(
          "--prefill-chunk", arguments.scheduler.prefill_chunk,
          "Tokens of prompts in a step beside running streams; 0: adapt, so that a step takes about twice as long")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--no-prefix-cache", arguments.no_prefix_cache, "Compute every prompt from its start")
      ->group(kGroup);
  command
      .add_option("--checkpoints", arguments.checkpoints,
                  "Recurrent states that the prefix cache keeps, one every 256 tokens of a prompt")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str()
      ->group(kGroup);
}

/// Takes the profile's settings where the command line has none of its own, and says which.
void apply_profile(const CLI::App& command, Arguments& arguments) {
  if (arguments.profile.empty()) return;
  const auto* profile =
      std::find_if(kProfiles.begin(), kProfiles.end(), [&](const Profile& p) { return arguments.profile == p.name; });
  std::string taken;
  const auto set = [&](const char* option, auto& value, const auto& setting) {
    if (command.get_option(option)->count() > 0) return;
    value = setting;
    taken += fmt::format(" {} {}", option, setting);
  };
  set("--context", arguments.context, profile->context);
  set("--max-sequences", arguments.max_sequences, profile->max_sequences);
  set("--max-rows", arguments.model.engine.device.max_rows, profile->max_rows);
  set("--checkpoints", arguments.checkpoints, profile->checkpoints);
  if (*profile->kv_cache_bytes != '\0')
    set("--kv-cache-bytes", arguments.model.kv_cache_bytes, std::string(profile->kv_cache_bytes));
  message("profile {} ({}):{}", profile->name, profile->machine, taken);
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("serve", "Answer requests over HTTP, as OpenAI's API does");
  add_model_options(*command, arguments->model);
  add_rank_options(*command, arguments->model);
  command
      ->add_option("--context", arguments->context,
                   "Most tokens of prompt and answer (default: 8192, or the model's limit)")
      ->check(CLI::PositiveNumber);
  command->add_option("--served-name", arguments->served_name, "Name of the model in requests (default: its folder's)");
  command
      ->add_option(
          "--profile", arguments->profile,
          "Settings for a kind of machine: handheld (4096 tokens of context, one request at a time, 512 MB of KV "
          "cache) or desktop (16384 tokens, four requests). Options of the command line win")
      ->check(CLI::IsMember({"handheld", "desktop"}));
  add_network_options(*command, *arguments);
  add_scheduling_options(*command, *arguments);
  arguments->http.threads = 2;
  command->footer(R"(
Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models, /tokenize, /detokenize,
/health, /metrics, and a chat page at /. docs/server.md tells what they take.

Examples:
  pergola serve models/story
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "story", "prompt": "Once upon a time", "max_tokens": 100}'
  PERGOLA_API_KEY=secret pergola serve MODEL --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem)");
  command->callback([arguments, command, &action] {
    apply_profile(*command, *arguments);
    action = [arguments] { return act(*arguments); };
  });
}

}  // namespace pergola
