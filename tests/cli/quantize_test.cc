#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/mapped_file.h"
#include "cli/program.h"
#include "support/tiny_conversion.h"

extern char** environ;

namespace pergola {
namespace {

using testing::contents;
using ::testing::HasSubstr;
using testing::kStory;
using testing::Outcome;
using testing::pergola;
using testing::TempFolder;
using testing::write_text;

/// A source with the story model's tokenizer, and a text.
struct Job {
  Job() {
    testing::TinyQwen tiny = testing::convertible();
    tiny.vocab = 4096;
    tiny.tied = true;
    std::filesystem::create_directory(folder / "source");
    tiny.write(folder / "source");
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(kStory + "/" + name, folder / "source" / name);
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "The king of the old house went to see number " + std::to_string(i * 37) + ". ";
    write_text(folder / "text", text);
  }

  std::vector<std::string> command(const std::string& destination, std::vector<std::string> more) const {
    std::vector<std::string> all{"quantize",
                                 folder / "source",
                                 folder / destination,
                                 "--calibration",
                                 folder / "text",
                                 "--columns",
                                 "64",
                                 "--rows",
                                 "6",
                                 "--head-bits",
                                 "16",
                                 "--threads",
                                 "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TempFolder folder;
};

std::string file_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Runs the program and kills it after `delay`, unless it ended before. Whether it ended well before.
bool run_and_kill(const std::vector<std::string>& arguments, std::chrono::milliseconds delay) {
  std::vector<char*> words{const_cast<char*>(PERGOLA_BINARY)};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, PERGOLA_BINARY, &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0);
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Quantize, SlowKilledAnywhereAndResumedGivesTheSameBytes) {
  const Job job;
  const std::vector<std::string> quick{"--bits", "6", "--evaluate", "0"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(pergola(job.command("whole", quick)).code, 0);
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::string> resumed = quick;
  resumed.push_back("--resume");
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    const auto delay = std::chrono::milliseconds(20 + random() % static_cast<unsigned>(whole * 600));
    run_and_kill(job.command("made", resumed), delay);
  }
  const Outcome last = pergola(job.command("made", resumed));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(contents(job.folder / "whole"), contents(job.folder / "made"));
  EXPECT_FALSE(std::filesystem::exists(job.folder / "made.work"));
}

TEST(Quantize, SeveralResultsWithTableJsonAndPlot) {
  const Job job;
  const Outcome outcome =
      pergola(job.command("made", {"--bits", "3,5", "--evaluate", "1", "--held-out", job.folder / "text", "--plot",
                                   job.folder / "kl.svg", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_GT(json[0].at("evaluation").at("kl_mean"), 3 * json[1].at("evaluation").at("kl_mean").get<double>());
  EXPECT_LE(json[0].at("bits"), 3);
  EXPECT_GT(json[1].at("linears").size(), 10u);
  const std::string svg = file_text(job.folder / "kl.svg");
  EXPECT_THAT(svg, HasSubstr("<polyline"));
  const Outcome table =
      pergola(job.command("one", {"--bits", "6", "--evaluate", "1", "--held-out", job.folder / "text"}));
  EXPECT_THAT(table.out, HasSubstr("mlp.experts.*.down_proj"));
  EXPECT_THAT(table.out, HasSubstr("KL from the source"));
}

TEST(Quantize, BadInputs) {
  const Job job;
  const auto expect = [&](const Outcome& outcome, const char* part) {
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  write_text(job.folder / "short", "A word.");
  write_text(job.folder / "empty", "");
  expect(pergola(job.command("a", {"--calibration", job.folder / "missing"})), "missing");
  const auto with = [&](const char* text) {
    return pergola(
        {"quantize", job.folder / "source", job.folder / "a", "--calibration", job.folder / text, "--columns", "64"});
  };
  expect(with("short"), "less than one row");
  expect(with("empty"), "less than one row");
  expect(pergola(job.command("a", {"--bits", "0.5"})), "0.5 bits");
  expect(pergola({"quantize", kStory, job.folder / "a", "--columns", "64", "--rows", "2"}), "EXL3 already");
  expect(pergola(job.command("a", {"--bits", "6", "--evaluate", "0"}), {.file_size_limit = 150'000}), "cannot write");
  EXPECT_FALSE(std::filesystem::exists(job.folder / "a"));
  const Outcome resumed = pergola(job.command("a", {"--bits", "6", "--evaluate", "0", "--resume"}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

}  // namespace
}  // namespace pergola
