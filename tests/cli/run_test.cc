#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cli/program.h"
#include "support/checkpoint_writer.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kStory;
using ::testing::Not;
using testing::Outcome;
using testing::pergola;
using ::testing::StartsWith;
using testing::TempFolder;
using testing::write_text;

std::vector<std::string> run_story(std::vector<std::string> more) {
  std::vector<std::string> all{"run", kStory, "--raw", "--backend", "reference", "--context", "256"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// One line, as a person should see it.
void expect_one_sentence(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.signal, 0);
  const std::size_t start = outcome.err.rfind("pergola: ");
  ASSERT_NE(start, std::string::npos) << outcome.err;
  EXPECT_THAT(outcome.err.substr(start), HasSubstr(part));
  EXPECT_EQ(outcome.err.find('\n', start), outcome.err.size() - 1) << outcome.err;
}

TEST(Run, WritesOnAndSaysHowFast) {
  const Outcome outcome = pergola(run_story({"-p", "Once upon a time", "-n", "8", "--greedy"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("Once upon a time"));
  EXPECT_GT(outcome.out.size(), 20u);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("context 256"), HasSubstr("prefill"), HasSubstr("decode"), HasSubstr("tokens/s")));
}

TEST(Run, SameSeedSameText) {
  const auto text = [](const std::string& seed) {
    return pergola(run_story({"-p", "The king", "-n", "12", "--temperature", "1", "--seed", seed})).out;
  };
  EXPECT_EQ(text("5"), text("5"));
  EXPECT_NE(text("5"), text("6"));
}

TEST(Run, PromptFromFileAndFromStandardInput) {
  const TempFolder folder;
  write_text(folder / "prompt.txt", "It was a dark");
  const std::string expected = pergola(run_story({"-p", "It was a dark", "-n", "5", "--greedy"})).out;
  EXPECT_EQ(pergola(run_story({"-f", folder / "prompt.txt", "-n", "5", "--greedy"})).out, expected);
  EXPECT_EQ(pergola(run_story({"-n", "5", "--greedy"}), {.input = "It was a dark"}).out, expected);
}

TEST(Run, PrintsTheDefaultContext) {
  const Outcome outcome = pergola({"run", kStory, "--backend", "reference", "-p", "A", "-n", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("context 8192"));
}

TEST(Run, FirstInterruptEndsTheTextCleanly) {
  const Outcome outcome = pergola({"run", kStory, "--raw", "--backend", "reference", "-p", "Once", "--logit-bias",
                                   "4088=-100", "--logit-bias", "4090=-100"},
                                  {.signals = {{"Once", SIGINT}}});
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("interrupted"), HasSubstr("tokens/s")));
}

TEST(Run, SecondInterruptEndsTheProgram) {
  // The first may already have ended it when the second comes; either way it is over at once.
  const Outcome outcome = pergola({"run", kStory, "--raw", "--backend", "reference", "-p", "Once", "--logit-bias",
                                   "4088=-100", "--logit-bias", "4090=-100"},
                                  {.signals = {{"Once", SIGINT}, {"Once", SIGINT}}});
  EXPECT_TRUE(outcome.signal == SIGINT || outcome.code == 130) << outcome.code << " " << outcome.signal;
}

TEST(Run, AnswersInTheFormOfTheTemplate) {
  const TempFolder folder;
  std::filesystem::copy(kStory, folder / "model");
  write_text(folder / "model/chat_template.jinja",
             "{% for m in messages %}{{ m.role[0] }}={{ m.content }} {% endfor %}{{ 'T' if enable_thinking is defined "
             "else 't' }}");
  const auto chat = [&](std::vector<std::string> more, const testing::RunOptions& options = {}) {
    std::vector<std::string> all{"run", folder / "model", "--backend", "reference", "--context", "256", "-n",
                                 "5",   "--greedy"};
    all.insert(all.end(), more.begin(), more.end());
    return pergola(all, options);
  };
  const auto raw = [&](const std::string& prompt) {
    return pergola(run_story({"-p", prompt, "-n", "5", "--greedy"})).out.substr(prompt.size());
  };
  EXPECT_EQ(chat({"-p", "The king"}).out, raw("u=The king t"));
  EXPECT_EQ(chat({"-p", "The king", "--system", "S", "--no-thinking"}).out, raw("s=S u=The king T"));
  // A second turn sees the first one; /clear forgets it.
  const std::string first = raw("u=The king t");
  const std::string answer = first.substr(0, first.size() - 1);
  const Outcome turns = chat({}, {.input = "The king\nA house\n/clear\nThe king\n\x04", .terminal_input = true});
  EXPECT_EQ(turns.out, first + raw("u=The king a=" + answer + " u=A house t") + first) << turns.err;
}

TEST(Run, SaysThatChatMlStandsInForATemplate) {
  const Outcome outcome =
      pergola({"run", kStory, "--backend", "reference", "--context", "256", "-p", "Hi", "-n", "3", "--greedy"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ChatML"), HasSubstr("--raw")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("im_start")));
}

TEST(Run, AsksOnATerminalUntilTheEndOfInput) {
  const Outcome outcome =
      pergola(run_story({"-n", "3", "--greedy"}), {.input = "Once upon\nThe king\n\x04", .terminal_input = true});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome first = pergola(run_story({"-n", "3", "--greedy", "-p", "Once upon"}));
  const Outcome second = pergola(run_story({"-n", "3", "--greedy", "-p", "The king"}));
  EXPECT_EQ(outcome.out, first.out + second.out);
  EXPECT_THAT(outcome.err, HasSubstr("> "));
}

TEST(Run, BadInputs) {
  const TempFolder folder;
  expect_one_sentence(pergola({"run", folder.path(), "--backend", "reference", "-p", "A"}), "config.json");
  expect_one_sentence(pergola({"run", folder / "nothing", "--backend", "reference", "-p", "A"}), "nothing");
  expect_one_sentence(pergola({"run", kStory, "--backend", "abacus", "-p", "A"}), "abacus");
  expect_one_sentence(pergola(run_story({"-p", ""})), "empty");
  expect_one_sentence(pergola(run_story({"-p", "A", "--system", "S"})), "--raw");
  expect_one_sentence(pergola(run_story({"-f", folder / "missing.txt"})), "missing.txt");
  expect_one_sentence(pergola(run_story({"-p", "A", "--top-p", "7"})), "top_p");
  expect_one_sentence(pergola(run_story({"-p", "A", "--logit-bias", "x=1"})), "--logit-bias");
  expect_one_sentence(pergola(run_story({"-p", "A", "--logit-bias", "5000=1"})), "5000");
  expect_one_sentence(pergola(run_story({"-p", "A", "--kv-cache-bytes", "12 elephants"})), "--kv-cache-bytes");
  expect_one_sentence(pergola({"run", kStory, "--backend", "reference", "-p", "A", "--context", "40000"}), "32768");
}

TEST(Run, PromptLongerThanTheContext) {
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "word ";
  const Outcome outcome = pergola(run_story({"-p", prompt}));
  expect_one_sentence(outcome, "context of 256");
}

TEST(Run, TruncatedWeightsAndUnreadableFiles) {
  const TempFolder folder;
  std::filesystem::copy(kStory, folder / "model");
  std::filesystem::resize_file(folder / "model/model.safetensors", 1'000'000);
  expect_one_sentence(pergola({"run", folder / "model", "--backend", "reference", "-p", "A"}), "model.safetensors");
  std::filesystem::resize_file(folder / "model/model.safetensors", 0);
  expect_one_sentence(pergola({"run", folder / "model", "--backend", "reference", "-p", "A"}), "model.safetensors");
  if (::geteuid() == 0) return;  // root may read everything
  std::filesystem::permissions(folder / "model/config.json", std::filesystem::perms::none);
  expect_one_sentence(pergola({"run", folder / "model", "--backend", "reference", "-p", "A"}), "config.json");
}

TEST(Run, FullDiskForTheText) {
  expect_one_sentence(pergola(run_story({"-p", "Once", "-n", "3"}), {.out_path = "/dev/full"}), "standard output");
}

TEST(Usage, ErrorsExitWithTwo) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"dance"},
                                             {"run"},
                                             {"run", kStory, "--no-such-flag"},
                                             {"run", kStory, "-n", "many"},
                                             {"run", kStory, "--isa", "mmx"},
                                             {"run", kStory, "-p", "A", "-f", "b"}}) {
    const Outcome outcome = pergola(words);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("pergola: "));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Usage, HelpTeachesWithExamples) {
  const Outcome help = pergola({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("run"), HasSubstr("perplexity"), HasSubstr("bench")));
  for (const std::string command :
       {"run", "perplexity", "compare", "logits", "bench", "verify", "devices", "inspect"}) {
    const Outcome outcome = pergola({command, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("Examples:"), HasSubstr("pergola " + command))) << command;
  }
}

TEST(Usage, VersionHasBuildFacts) {
  const Outcome outcome = pergola({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("pergola "), HasSubstr("commit"), HasSubstr("compiler"),
                                 HasSubstr("backends"), HasSubstr("reference")));
}

}  // namespace
}  // namespace pergola
